#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
# test_packages.sh SOURCE: a dry run of cmake/install_packages.sh with the /etc/os-release of other systems: the names of
# packages that it prints. Each package that the CMake files name must have a name on Fedora.
set -euo pipefail

source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_packages: $*" >&2; cat "$work/out" >&2; exit 1; }

# printed SYSTEM MISSING...: what is printed for Debian's packages MISSING.
printed() {
  printf 'Part|%s|part\n' "${@:2}" >"$work/missing.txt"
  ! KOZERO_NO_INSTALL=1 KOZERO_OS_RELEASE=$work/$1 "$source/cmake/install_packages.sh" missing "$work/missing.txt" release \
    >"$work/out" 2>&1 || fail "$1: a dry run must fail"
}
has() { grep -qxF "kozero: $1" "$work/out" || fail "$system: no line '$1'"; }
has_no() { ! grep -qE "$1" "$work/out" || fail "$system: a line with '$1'"; }

printf 'ID=debian\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\n' >"$work/debian"
printf 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n' >"$work/ubuntu"
printf 'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=42\n' >"$work/fedora"
printf 'NAME="Red Hat Enterprise Linux"\nID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.6"\n' >"$work/rhel"
printf 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n' >"$work/rocky"

some=('mpich libmpich-dev' libhdf5-mpich-dev nlohmann-json3-dev zlib1g-dev catch2)
for system in debian ubuntu; do
  printed $system "${some[@]}"
  name=Debian
  [[ $system == debian ]] || name=Ubuntu
  has "on $name, as root: apt-get install ${some[*]}"
  has_no 'dnf|EPEL'
done
rhel='  (many are in EPEL and CRB, as root: subscription-manager repos --enable codeready-builder-for-rhel-9-$(arch)-rpms'
rhel+=' && dnf install https://dl.fedoraproject.org/pub/epel/epel-release-latest-9.noarch.rpm; GCC must be 12 or newer)'
rocky='  (many are in EPEL and CRB, as root: dnf install epel-release && dnf config-manager --set-enabled crb;'
rocky+=' GCC must be 12 or newer)'
for system in fedora rhel rocky; do
  printed $system "${some[@]}"
  name=$(sed -n 's/^NAME="\(.*\)"$/\1/p' "$work/$system")
  has "on $name, as root: dnf install mpich mpich-devel hdf5-mpich-devel json-devel zlib-devel catch-devel"
  has "  (then, in each shell: module load mpi/mpich-x86_64)"
  has_no 'apt-get install|backports'
  case $system in
    fedora) has_no EPEL ;;
    rhel) has "$rhel"; has_no 'epel-release &&|config-manager' ;;
    rocky) has "$rocky"; has_no subscription-manager ;;
  esac
done

# What tests/slurm starts: Slurm's commands and both of its daemons.
for system in debian fedora rhel; do
  ! KOZERO_NO_INSTALL=1 KOZERO_OS_RELEASE=$work/$system "$source/cmake/install_packages.sh" slurm >"$work/out" 2>&1 ||
    fail "$system: a dry run must fail"
  if [[ $system == debian ]]; then has "missing: munge slurm-wlm"; else has "missing: munge slurm slurm-slurmctld slurm-slurmd"; fi
done

# Verbs whose packages no CMake file lists: on Fedora the dry run prints no Debian name.
system=fedora
for verb in gnuplot cluster slurm scale; do
  ! KOZERO_NO_INSTALL=1 KOZERO_OS_RELEASE=$work/fedora "$source/cmake/install_packages.sh" $verb >"$work/out" 2>&1 ||
    fail "$verb: a dry run must fail"
  has_no '[a-z]-dev( |$)|-nox|-wlm|iproute2|procps( |$)'
  [[ $verb != cluster ]] || has "missing: iproute iproute-tc util-linux procps-ng"
done

# All that the CMake files name, and the tools.
system=fedora
mapfile -t all < <(sed -nE 's/^[^#]*DEBIAN "?([a-z0-9 -]*[a-z0-9])"? SPACK.*/\1/p' "$source"/cmake/*.cmake | tr ' ' '\n' | sort -u)
((${#all[@]} > 12)) || fail "the CMake files name only ${all[*]}"
printed fedora "${all[@]}"
has_no 'dnf install.*(-dev( |$)|[a-z]-[a-z]+3-dev)'
for package in "${all[@]}"; do
  [[ $package != *-dev && $package != catch2 ]] || has_no "dnf install.* $package( |\$)"
done
! KOZERO_NO_INSTALL=1 KOZERO_OS_RELEASE=$work/fedora CXX=no-such-compiler "$source/cmake/install_packages.sh" tools >"$work/out" 2>&1 ||
  fail "a dry run without a compiler must fail"
grep -qE 'dnf install gcc-c\+\+ .*mpich-devel' "$work/out" || fail "tools: no gcc-c++"
