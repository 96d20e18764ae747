#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# install_packages.sh: installs what is missing on a Debian or Ubuntu machine; called by kozero.sh.
#   install_packages.sh tools                        compiler, CMake, Ninja, pkg-config
#   install_packages.sh gnuplot                      what `kozero plot` and `report` draw with
#   install_packages.sh cluster                      what tests/cluster makes hosts with, in a container too
#   install_packages.sh slurm                        what tests/slurm starts a cluster with
#   install_packages.sh scale                        what tests/scale simulates clusters with
#   install_packages.sh missing missing.txt PRESET   what CMake did not find (see cmake/Dependencies.cmake), Kokkos too
# It says first what it is about to install. With KOZERO_NO_INSTALL=1, or without the right to install, it prints the
# names of the packages and the Spack commands instead, and fails. On Fedora, RHEL and their relatives it always prints
# and fails, with the package names of that system. KOZERO_OS_RELEASE=FILE replaces /etc/os-release, for tests.
set -euo pipefail

readonly kHere=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly kSpackWay="with Spack: spack env activate . && spack install (spack.yaml in this folder), then the same command again"
readonly kBackports=/etc/apt/sources.list.d/kozero-backports

say() { echo "kozero: $*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- the system -------------------------------------------------------------------------------------------------------

# Debian's name, then Fedora's name or names, joined by commas. Packages that are not listed have the same name on both.
# On RHEL many of these are in EPEL and CRB, and some are missing.
readonly kFedoraNames='
  g++ gcc-c++                            pkg-config pkgconf-pkg-config       python3-venv python3
  mpich mpich                            libmpich-dev mpich-devel            libhdf5-mpich-dev hdf5-mpich-devel
  hdf5-tools hdf5                        libdnnl-dev onednn-devel            libtomlplusplus-dev tomlplusplus-devel
  nlohmann-json3-dev json-devel          libcli11-dev cli11-devel            libfmt-dev fmt-devel
  libpcre2-dev pcre2-devel               libxxhash-dev xxhash-devel          libsentencepiece-dev sentencepiece-devel
  libutf8proc-dev utf8proc-devel         zlib1g-dev zlib-devel               libzstd-dev libzstd-devel
  catch2 catch-devel                     libnccl-dev libnccl-devel           gnuplot-nox gnuplot
  iproute2 iproute                       procps procps-ng                    slurm-wlm slurm,slurm-slurmctld,slurm-slurmd'

# os_release KEY: the value of KEY, without quotes.
os_release() { sed -nE "s/^$1=[\"']?([^\"']*)[\"']?$/\1/p" "${KOZERO_OS_RELEASE:-/etc/os-release}" 2>/dev/null || true; }

is_fedora() { [[ " $(os_release ID) $(os_release ID_LIKE) " =~ \ (fedora|rhel|centos)\  ]]; }
uses_apt() { ! is_fedora && have apt-get; }

# native_names PACKAGE...: names of this system, given Debian's.
native_names() {
  local name
  is_fedora || { echo "$*"; return; }
  for name in "$@"; do
    awk -v name="$name" '{ for (i = 1; i < NF; i += 2) if ($i == name) found = $(i + 1) }
                         END { print found ? found : name }' <<<"$kFedoraNames"
  done | tr ',' '\n' | awk '!seen[$0]++' | paste -s -d ' '
}

# ---- what is missing --------------------------------------------------------------------------------------------------

missing_tools() {
  have "${CXX:-c++}" || echo g++
  have cmake || echo cmake
  have ninja || echo ninja-build
  have pkg-config || echo pkg-config
}

# What install_kokkos.sh needs to fetch, unpack and patch the sources.
missing_kokkos_tools() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] || echo ca-certificates
  have patch || echo patch
}

is_installed() {
  if is_fedora; then rpm -q $(native_names "$1") >/dev/null 2>&1; else
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
  fi
}

# Every package that the CMake files name and that is not installed: what to ask for where CMake cannot be asked yet.
missing_libraries() {
  local package
  local named='s/^[^#]*DEBIAN "?([a-z0-9 -]*[a-z0-9])"? SPACK.*/\1/p'
  for package in $(sed -nE "$named" "$kHere"/{Dependencies,MessagePassing,Hdf5,OneDnn}.cmake); do
    is_installed "$package" || echo "$package"
  done
}

# ---- Debian and Ubuntu ------------------------------------------------------------------------------------------------

may_install() { [[ $(id -u) == 0 ]] || { have sudo && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; }; }

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# Prints nothing; where it fails, it leaves its last lines.
apt_get() {
  local log
  log=$(mktemp)
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

update_lists() { apt_get update || say "apt-get update failed; going on with the package lists that are here"; }

# How to enable the repositories that RHEL and its rebuilds need in addition to their own.
say_epel_and_crb() {
  local release commands='dnf install epel-release && dnf config-manager --set-enabled crb'
  release=$(os_release VERSION_ID)
  release=${release%%.*}
  [[ $(os_release ID) != rhel ]] ||
    commands="subscription-manager repos --enable codeready-builder-for-rhel-$release-\$(arch)-rpms && dnf install \
https://dl.fedoraproject.org/pub/epel/epel-release-latest-$release.noarch.rpm"
  say "  (many are in EPEL and CRB, as root: $commands; GCC must be 12 or newer)"
}

# refuse PACKAGE...: where nothing may be installed, says what to ask for.
refuse() {
  local names
  names=$(native_names "$@")
  say "missing: $names"
  if is_fedora; then
    say "on $(os_release NAME), as root: dnf install $names"
    [[ $(os_release ID) == fedora ]] || say_epel_and_crb
    [[ " $names " != *' mpich-devel '* ]] || say "  (then, in each shell: module load mpi/mpich-x86_64)"
  else
    say "on $([[ $(os_release ID) == ubuntu ]] && echo Ubuntu || echo Debian), as root: apt-get install $names"
    [[ " $* " != *' catch2 '* ]] ||
      say "  (catch2 must be 3.4 or newer: on Debian 12 it is in bookworm-backports; Ubuntu has it from 24.04 on)"
  fi
  say "$kSpackWay"
  exit 1
}

# The machine's own entry for bookworm, made one for bookworm-backports: same address, same key. Prints nothing if none.
backports_entry() {
  cat /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -v '^#' | awk 'BEGIN { RS = "" }
    /(^|\n)Suites:[^\n]*[ \t]bookworm([ \t\n]|$)/ && !/(^|\n)Enabled: *no/ {
      count = split($0, line, "\n")
      for (i = 1; i <= count; ++i) {
        if (line[i] !~ /^[ \t]/) keep = line[i] ~ /^(Types|URIs|Signed-By|Trusted):/
        if (keep) print line[i]
      }
      print "Suites: bookworm-backports\nComponents: main"
      exit
    }'
}

backports_line() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE 's/^deb[ \t]+(\[[^]]*\][ \t]+)?([^ \t]+)[ \t]+bookworm[ \t]+.*/deb \1\2 bookworm-backports main/p' | head -n 1
}

newest_catch2() { apt-cache madison catch2 2>/dev/null | awk -F ' *\\| *' '$2 !~ /^2/ { print $2; exit }'; }

# Debian 12 has Catch2 2; 3 is in its backports.
make_catch2_reachable() {
  [[ -z $(newest_catch2) ]] || return 0
  local entry
  if entry=$(backports_entry || true) && [[ -n $entry ]]; then
    say "adding bookworm-backports to the package sources: $kBackports.sources"
    as_root tee "$kBackports.sources" <<<"$entry" >/dev/null
  elif entry=$(backports_line || true) && [[ -n $entry ]]; then
    say "adding bookworm-backports to the package sources: $kBackports.list"
    as_root tee "$kBackports.list" <<<"$entry" >/dev/null
  fi
  update_lists
  [[ -z $(newest_catch2) ]] || return 0
  as_root rm -f "$kBackports.sources" "$kBackports.list"
  say "Catch2 3 is not reachable: neither this machine's package sources nor bookworm-backports have it"
}

# apt_install PACKAGE...
apt_install() {
  local packages=("$@") index version
  (($# > 0)) || return 0
  uses_apt || { say "packages are installed on Debian and Ubuntu only (apt-get)"; refuse "$@"; }
  [[ -z ${KOZERO_NO_INSTALL:-} ]] && may_install || refuse "$@"
  have ccache || packages+=(ccache)
  say "installing with apt-get: ${packages[*]}"
  update_lists
  for index in "${!packages[@]}"; do
    [[ ${packages[index]} == catch2 ]] || continue
    make_catch2_reachable
    version=$(newest_catch2)
    unset "packages[$index]"
    [[ -z $version ]] || packages+=("catch2=$version" "libcatch2-dev=$version")
  done
  ((${#packages[@]} == 0)) || apt_get install --no-install-recommends "${packages[@]}" || die "apt-get could not install: ${packages[*]}"
}

# ---- the ways in ------------------------------------------------------------------------------------------------------

install_tools() {
  local tools
  mapfile -t tools < <(missing_tools)
  ((${#tools[@]} > 0)) || return 0
  if [[ -n ${KOZERO_NO_INSTALL:-} ]] || ! may_install || ! uses_apt; then
    mapfile -t -O "${#tools[@]}" tools < <(missing_kokkos_tools; missing_libraries)
  fi
  apt_install "${tools[@]}"
}

# The style tests are left out where these cannot be installed.
install_style_checkers() {
  local packages=()
  have clang-format-14 || packages+=(clang-format-14)
  have clang-tidy-14 || packages+=(clang-tidy-14)
  ((${#packages[@]} > 0)) && [[ -z ${KOZERO_NO_INSTALL:-} ]] && may_install && uses_apt || return 0
  apt-cache show "${packages[@]}" >/dev/null 2>&1 || update_lists
  apt-cache show "${packages[@]}" >/dev/null 2>&1 || return 0
  apt_install "${packages[@]}"
}

install_missing() {
  local list=$1 device=host packages kokkos=no
  [[ $2 != cuda ]] || device=cuda
  say "missing: $(cut -d '|' -f 1 "$list" | paste -s -d ',' | sed 's/,/, /g')"
  ! grep -q '^Kokkos' "$list" || kokkos=yes
  mapfile -t packages < <(grep -v '^Kokkos' "$list" | cut -d '|' -f 2 | tr ' ' '\n' | grep . || true
                          [[ $kokkos == no ]] || missing_kokkos_tools)
  apt_install "${packages[@]}"
  if [[ $kokkos == yes ]]; then
    [[ -z ${KOZERO_NO_INSTALL:-} ]] || { say "Kokkos would be built into $("$kHere/install_kokkos.sh" --print-prefix $device)"; say "$kSpackWay"; exit 1; }
    "$kHere/install_kokkos.sh" $device >/dev/null
  fi
}

case ${1:-} in
  tools) install_tools ;;
  gnuplot) apt_install gnuplot-nox ;;
  cluster) apt_install iproute2 util-linux procps ;;
  slurm) apt_install munge slurm-wlm ;;
  scale) apt_install libsimgrid-dev ;;
  style) install_style_checkers ;;
  missing) install_missing "$2" "$3" ;;
  *) die "install_packages.sh: '${1:-}' is not one of: tools, gnuplot, cluster, slurm, scale, style, missing" ;;
esac
