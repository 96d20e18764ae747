#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# steps.sh: what the Dockerfile, kozero.def and tests/install/chroot.sh run on a Debian 12, as root.
#   steps.sh build SOURCE OUT   installs the tools and libraries, builds for x86-64-v3, writes a Debian package into OUT
#   steps.sh install OUT        installs that package and what it depends on
#   steps.sh check              trains 20 steps of a small model on two ranks; their loss must fall
set -euo pipefail

build() {
  local source=$1 out=$2
  cd "$source"
  export KOZERO_MARCH=${KOZERO_MARCH:-x86-64-v3}
  apt-get -q update
  apt-get -q -y install --no-install-recommends ca-certificates dpkg-dev file git python3-venv
  ./kozero.sh keys >/dev/null  # installs what is missing, configures, and builds the program
  cmake --build build/release --target kozero-bench
  (cd build/release && cpack -G DEB -B "$out")
}

install_package() {
  apt-get -q update
  DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$1"/kozero_*.deb
  rm -rf /var/lib/apt/lists/*
}

check() {
  local work
  work=$(mktemp -d)
  trap "rm -rf '$work'" EXIT
  cd "$work"
  OMP_NUM_THREADS=1 mpiexec -n 2 kozero train /usr/share/kozero/inputs/demos/synthetic.toml run.steps=20 log.every=1 \
    run.dir="$work/run" | tee out
  awk '/^step / { last = $4; if (first == "") first = $4; ++count }
       END { exit !(count == 20 && last < first) }' out || { echo "steps.sh: no 20 steps with a falling loss" >&2; exit 1; }
}

case ${1:-} in
  build) build "$2" "$3" ;;
  install) install_package "$2" ;;
  check) check ;;
  *) sed -n '5,8s/^# *//p' "$0" >&2; exit 2 ;;
esac
