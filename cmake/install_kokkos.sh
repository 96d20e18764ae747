#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# install_kokkos.sh: builds the pinned Kokkos for one device and prints its install prefix as the last line.
#   cmake/install_kokkos.sh host|cuda             build where it is missing
#   cmake/install_kokkos.sh --print-prefix host   only say where it lies or would lie
# It lives in ${XDG_CACHE_HOME:-~/.cache}/kozero/kokkos/<version>-<device>-<key>, the key made of the compiler, the
# options and the patches, so that every clone of one user shares it. The source is the copy of Kokkos 4.7.00 in the
# sdist of pygenten 0.1.5 (Sandia National Laboratories), pinned by its SHA-256.
set -euo pipefail

readonly kKokkosVersion=4.7.00
readonly kSdist='pygenten==0.1.5'
readonly kSdistSha256=e620f05c742905e2db705d875f1cac92ef0ed453f9e6734e9beda26cc0f9cce7
readonly kHere=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly kCache=${XDG_CACHE_HOME:-$HOME/.cache}/kozero
readonly kCudaArch=${KOZERO_CUDA_ARCH:-80}

die() { echo "kozero: $*" >&2; exit 1; }
say() { echo "kozero: $*" >&2; }

# The CMake options of a device, one per line. CMake 3.25 does not know how to ask nvcc for C++20, hence the flag.
kokkos_options() {
  printf '%s\n' -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_EXTENSIONS=OFF \
    -DKokkos_ENABLE_SERIAL=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_TESTS=OFF
  [[ $1 == host ]] && return
  printf '%s\n' -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=ON \
    -DCMAKE_CUDA_FLAGS=-std=c++20 "-DCMAKE_CUDA_ARCHITECTURES=$kCudaArch" "-DKokkos_ARCH_$(kokkos_arch_name)=ON"
}

kokkos_arch_name() {
  case $kCudaArch in
    80) echo AMPERE80 ;;
    86) echo AMPERE86 ;;
    89) echo ADA89 ;;
    90) echo HOPPER90 ;;
    *) die "KOZERO_CUDA_ARCH=$kCudaArch is not known; accepted: 80, 86, 89, 90" ;;
  esac
}

cuda_compiler() {
  command -v nvcc 2>/dev/null || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; } ||
    die "no CUDA compiler: nvcc is neither on the PATH nor in /usr/local/cuda/bin"
}

cxx_compiler() { command -v "${CXX:-c++}" 2>/dev/null || die "no C++ compiler '${CXX:-c++}': install g++"; }

kokkos_prefix() {
  local identity
  identity=$(kokkos_options "$1"; "$(cxx_compiler)" --version | head -n 1; sha256sum "$kHere"/patches/kokkos-* | cut -d ' ' -f 1
             [[ $1 == host ]] || { "$(cuda_compiler)" --version | tail -n 1; sha256sum <"$kHere/patches/mdspan-no-unique-address.patch"; })
  echo "$kCache/kokkos/$kKokkosVersion-$1-$(sha256sum <<<"$identity" | cut -c 1-12)"
}

# Unpacks Kokkos into the folder $1.
fetch_kokkos() {
  python3 -m venv "$1/venv" || die "python3 cannot make a virtual environment: install python3-venv"
  echo "$kSdist --hash=sha256:$kSdistSha256" >"$1/requirements.txt"
  "$1/venv/bin/python" -m pip download --quiet --no-deps --no-binary pygenten --require-hashes \
    --dest "$1" --requirement "$1/requirements.txt" >&2 || die "cannot download $kSdist (the carrier of Kokkos $kKokkosVersion)"
  tar --extract --gzip --file "$(echo "$1"/pygenten-*.tar.gz)" --directory "$1" --wildcards '*/tpls/kokkos'
  mv "$1"/pygenten-*/tpls/kokkos "$1/kokkos"
}

# Each patch says which error of Kokkos 4.7.00 it mends. They are for nvcc, and leave the host's Kokkos as it is.
patch_kokkos() {
  [[ $2 == cuda ]] || return 0
  local name
  for name in kokkos-4.7.00-cuda-13 mdspan-no-unique-address; do
    patch --quiet --strip 1 --directory "$1/kokkos" <"$kHere/patches/$name.patch" >&2
  done
}

build_kokkos() {
  local work=$1 device=$2 prefix=$3 options
  mapfile -t options < <(kokkos_options "$device")
  [[ $device == host ]] || options+=("-DCMAKE_CUDA_COMPILER=$(cuda_compiler)")
  cmake -S "$work/kokkos" -B "$work/build" -G Ninja "-DCMAKE_CXX_COMPILER=$(cxx_compiler)" \
    "-DCMAKE_INSTALL_PREFIX=$prefix" "${options[@]}" &&
    cmake --build "$work/build" ${KOZERO_BUILD_JOBS:+--parallel "$KOZERO_BUILD_JOBS"} &&
    DESTDIR="$work/root" cmake --install "$work/build"
}

main() {
  local print_only=no
  [[ ${1:-} == --print-prefix ]] && { print_only=yes; shift; }
  local device=${1:-host}
  [[ $device == host || $device == cuda ]] || die "install_kokkos.sh: device '$device'; accepted: host, cuda"
  local prefix
  prefix=$(kokkos_prefix "$device")
  if [[ $print_only == no && ! -e $prefix/include/Kokkos_Core.hpp ]]; then
    say "building Kokkos $kKokkosVersion ($device) into $prefix"
    local work
    mkdir -p "$kCache/kokkos"
    work=$(mktemp -d "$kCache/kokkos/build.XXXXXX")
    trap "rm -rf '$work'" EXIT
    fetch_kokkos "$work"
    patch_kokkos "$work" "$device"
    build_kokkos "$work" "$device" "$prefix" >"$work/log.txt" 2>&1 ||
      { tail -n 40 "$work/log.txt" >&2; die "the build of Kokkos failed; its last lines are above"; }
    mv -T "$work/root$prefix" "$prefix" 2>/dev/null || [[ -e $prefix/include/Kokkos_Core.hpp ]] || die "cannot write $prefix"
  fi
  echo "$prefix"
}

main "$@"
