#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# chroot.sh: the package and the steps of the containers in a bare Debian 12. By hand, as root; needs debootstrap and 2 GB.
#   tests/install/chroot.sh package BUILD [ROOT]    packs BUILD, installs the package, trains there on 2 ranks, loads the
#                                                   modulefile by Lmod and by Environment Modules
#   tests/install/chroot.sh build [ROOT]            builds the package there from the sources of HEAD first (many minutes)
# ROOT is a bare Debian 12 that is copied instead of one made by debootstrap. DEBIAN_MIRROR is its source of packages.
set -euo pipefail

readonly kSource=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly kMirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

fail() { echo "chroot.sh: $*" >&2; exit 1; }
usage() { sed -n '6,9s/^# *//p' "$0" >&2; exit 2; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

leave() {
  umount "$root/proc" "$root/dev/shm" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}

make_root() {
  if [[ -n $1 ]]; then cp -a "$1" "$root"; else
    command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
    debootstrap --variant=minbase bookworm "$root" "$kMirror" >"$work/debootstrap.log" ||
      { tail -n 5 "$work/debootstrap.log" >&2; fail "debootstrap"; }
  fi
  mount -t proc proc "$root/proc"
  mkdir -p "$root/dev/shm"
  mount -t tmpfs tmpfs "$root/dev/shm"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp "$kSource/cmake/containers/steps.sh" "$root/steps.sh"
}

# Both read the same modulefile; the name of a variable that it sets shows that it was read.
load_module() {
  local kind=$1 script=$2 loaded
  inside apt-get -q update >"$work/apt.log"
  inside env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$kind" >"$work/apt.log" 2>&1 ||
    { tail -n 5 "$work/apt.log" >&2; fail "$kind cannot be installed"; }
  loaded=$(inside bash -c "source $script && module use /usr/share/modulefiles && module load kozero && echo \$KOZERO")
  [[ $loaded == /usr/bin/kozero ]] || fail "$kind: module load kozero sets KOZERO to '$loaded'"
  inside apt-get -q -y purge "$kind" >"$work/apt.log" 2>&1
  echo "chroot.sh: $kind loads the modulefile"
}

main() {
  local verb=${1:-}
  [[ $verb == package && -n ${2:-} || $verb == build ]] || usage
  [[ $(id -u) == 0 ]] || fail "must be root"
  work=$(mktemp -d)
  root=$work/root
  trap leave EXIT
  if [[ $verb == package ]]; then
    make_root "${3:-}"
    (cd "$2" && cpack -G DEB -B "$root/package" >"$work/cpack.log") || { cat "$work/cpack.log" >&2; fail "cpack"; }
  else
    make_root "${2:-}"
    git clone -q "$kSource" "$root/source"
    inside /steps.sh build /source /package
  fi
  dpkg-deb --fsys-tarfile "$root"/package/kozero_*.deb | tar --extract --to-stdout ./usr/bin/kozero >"$work/kozero"
  ! readelf -d "$work/kozero" | sed -nE 's/.*R(UN)?PATH.*\[(.*)\]/\2/p' | tr ':' '\n' | grep -vE '^(/usr/lib/|\$ORIGIN/|$)' ||
    fail "the program in the package searches libraries in the folders above, which are this machine's"
  dpkg-deb --field "$root"/package/kozero_*.deb Package Version Depends
  inside /steps.sh install /package
  inside /steps.sh check
  load_module lmod /etc/profile.d/lmod.sh
  load_module environment-modules /etc/profile.d/modules.sh
  echo "chroot.sh: passed ($verb)"
}

main "$@"
