#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# processors.sh: tests for other processors, emulated by qemu-user, and by other compilers. Run by hand or once a week,
# on Debian.
#   tests/processors.sh haswell    AVX2 and FMA (KOZERO_MARCH=x86-64-v3): kernels, and the ladder of ZeRO stages
#   tests/processors.sh nehalem    SSE4.2 (KOZERO_MARCH=x86-64-v2): the same
#   tests/processors.sh aarch64    Arm, cross-compiled without oneDNN: all test programs of the layers below commands
#   tests/processors.sh golden     the bits of tests/train/golden.txt on haswell and aarch64, and on this processor by
#                                  clang++, by g++ with -O2, and by g++ for AVX2; or only on those named
# Needs the packages that `./kozero.sh build` installs; installs qemu and the cross compiler itself, as root.
# Further arguments go to ctest: -E ladder. Builds stay in build/processors/; Debian's packages for arm64 are unpacked
# into ${XDG_CACHE_HOME:-~/.cache}/kozero/arm64-KEY, and not installed. Status 0: all tests passed.
set -euo pipefail

readonly kRoot=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly kCache=${XDG_CACHE_HOME:-$HOME/.cache}/kozero
readonly kArm64Packages='libc6-dev libstdc++-12-dev libmpich-dev libhdf5-mpich-dev libtomlplusplus-dev nlohmann-json3-dev
  libcli11-dev libfmt-dev libpcre2-dev libxxhash-dev libsentencepiece-dev libutf8proc-dev zlib1g-dev libzstd-dev
  catch2/bookworm-backports'
readonly kArm64=$kCache/arm64-$(sha256sum <<<"$kArm64Packages" | cut -c 1-12)
readonly kKernelTests='test_row_kernels test_element_kernels test_matmul test_product_tuning test_attention
  test_cross_entropy test_tiles test_product_bits test_portable_math'

die() { echo "processors.sh: $*" >&2; exit 1; }
say() { echo "processors.sh: $*" >&2; }

# The targets to build, and the tests' names for ctest, in the build folder $2. test_floor trains for 1,000 steps, and
# test_device_* and test_cudnn_graphs are about GPUs.
targets_of() {
  if [[ $1 == aarch64 ]]; then
    grep -vE '^test_(floor|device_|cudnn)' "$2/test_programs.txt"
  else
    echo "$kKernelTests test_ladder"
  fi
}

install_emulator() {
  local packages=()
  case $1 in
    clang) command -v clang++-14 >/dev/null && [[ -e /usr/lib/llvm-14/lib/libomp.so ]] || packages+=(clang-14 libomp-14-dev) ;;
    avx2 | O2) ;;
    *) command -v qemu-x86_64 >/dev/null || packages+=(qemu-user) ;;
  esac
  [[ $1 != aarch64 ]] || command -v aarch64-linux-gnu-g++ >/dev/null || packages+=(g++-aarch64-linux-gnu)
  ((${#packages[@]} == 0)) && return
  say "installing with apt-get: ${packages[*]}"
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install "${packages[@]}"; } >/dev/null ||
    die "apt-get failed: install ${packages[*]}"
}

# Debian's packages for arm64, unpacked into a folder of their own: this machine's packages stay as they are.
unpack_arm64() {
  [[ -e $kArm64/complete ]] && return
  say "unpacking Debian's arm64 packages into $kArm64"
  local packages work=$kArm64/apt keyring=/usr/share/keyrings/debian-archive-keyring.gpg archive link
  rm -rf "$kArm64"
  mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$kArm64/root"
  : >"$work/status"
  printf "deb [signed-by=$keyring] http://deb.debian.org/debian %s main\n" bookworm bookworm-backports >"$work/sources.list"
  cat >"$work/apt.conf" <<CONFIGURATION
APT::Architecture "arm64"; APT::Architectures {"arm64";}; APT::Install-Recommends "false"; APT::Sandbox::User "root";
Dir::State "$work/state"; Dir::State::status "$work/status"; Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list"; Dir::Etc::sourceparts "-";
CONFIGURATION
  APT_CONFIG=$work/apt.conf apt-get -qq update || die "apt-get update failed for arm64"
  read -r -d '' -a packages <<<"$kArm64Packages" || true
  APT_CONFIG=$work/apt.conf apt-get -qq -y --download-only install "${packages[@]}" >/dev/null ||
    die "apt-get failed for arm64"
  for archive in "$work"/cache/archives/*.deb; do dpkg-deb --extract "$archive" "$kArm64/root"; done
  # Absolute links would point out of the folder.
  find "$kArm64/root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$kArm64/root$(readlink "$link")")" "$link"
  done
  rm -rf "$work"
  touch "$kArm64/complete"
}

# The toolchain file. Debian's MPI compiler wrappers are for this machine's processor, so MPI is given by its files.
write_toolchain() {
  local libraries=$kArm64/root/usr/lib/aarch64-linux-gnu
  cat <<TOOLCHAIN
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "$kArm64/root")
set(CMAKE_FIND_ROOT_PATH "$kArm64/root" "$kCache")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "$libraries/pkgconfig:$kArm64/root/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "$kArm64/root")
foreach(language C CXX)
  set(MPI_\${language}_COMPILER CMAKE_\${language}_COMPILER)
  set(MPI_\${language}_LIB_NAMES mpich)
  set(MPI_\${language}_HEADER_DIR "$libraries/mpich/include")
endforeach()
set(MPI_mpich_LIBRARY "$libraries/libmpich.so")
TOOLCHAIN
}

configure() {
  local build=$1 processor=$2 options=()
  case $processor in
    aarch64)
      write_toolchain >"$build/toolchain.cmake"
      export CMAKE_TOOLCHAIN_FILE=$build/toolchain.cmake CXX=aarch64-linux-gnu-g++
      "$kRoot/cmake/install_kokkos.sh" host >/dev/null
      options=(-DKOZERO_ONEDNN=OFF -DKOZERO_MARCH=)
      printf '#!/bin/sh\nexec qemu-aarch64 -L "%s" "$@"\n' "$kArm64/root" >"$build/emulator"
      ;;
    haswell | nehalem)
      options=("-DKOZERO_MARCH=x86-64-v$([[ $processor == haswell ]] && echo 3 || echo 2)")
      printf '#!/bin/sh\nexec qemu-x86_64 -cpu %s "$@"\n' "${processor^}" >"$build/emulator"
      ;;
    clang)
      export CXX=clang++-14
      "$kRoot/cmake/install_kokkos.sh" host >/dev/null
      ;;&
    O2) options=("-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG") ;;&
    avx2) options=(-DKOZERO_MARCH=x86-64-v3) ;;&
    *) printf '#!/bin/sh\nexec "$@"\n' >"$build/emulator" ;;
  esac
  chmod +x "$build/emulator"
  cmake -S "$kRoot" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CROSSCOMPILING_EMULATOR=$build/emulator" \
    "${options[@]}" >"$build/configure.log" 2>&1 || { tail -n 20 "$build/configure.log" >&2; die "configuring failed"; }
}

# golden [NAME...]: each in a shell of its own, since configure exports variables.
golden() {
  local names=("$@") name build failed=0
  ((${#names[@]} > 0)) || names=(avx2 O2 clang haswell aarch64)
  for name in "${names[@]}"; do
    [[ $name =~ ^(avx2|O2|clang|haswell|aarch64)$ ]] ||
      die "golden '$name'; accepted: avx2, O2, clang, haswell, aarch64 (tests/processors.sh golden haswell)"
    build=$kRoot/build/processors/$name
    mkdir -p "$build"
    (
      install_emulator "$name"
      [[ $name != aarch64 ]] || unpack_arm64
      configure "$build" "$name"
      say "compiling kozero for $name"
      cmake --build "$build" --target kozero >"$build/build.log" 2>&1 || { tail -n 20 "$build/build.log" >&2; exit 1; }
    )
    printf '#!/bin/sh\nexec "%s/emulator" "%s/kozero" "$@"\n' "$build" "$build" >"$build/emulated"
    chmod +x "$build/emulated"
    for case in f32 portable; do
      if "$kRoot/tests/train/test_golden.sh" "$build/emulated" none "$kRoot/inputs" $case; then
        say "$name: $case has the golden bits"
      else
        failed=1
      fi
    done
  done
  return "$failed"
}

main() {
  local processor=${1:-} build targets
  [[ $processor != golden ]] || { shift; golden "$@"; return; }
  [[ $processor =~ ^(haswell|nehalem|aarch64)$ ]] ||
    die "processor '$processor'; accepted: haswell, nehalem, aarch64, golden (tests/processors.sh haswell)"
  shift
  build=$kRoot/build/processors/$processor
  mkdir -p "$build"
  install_emulator "$processor"
  [[ $processor != aarch64 ]] || unpack_arm64
  configure "$build" "$processor"
  read -r -d '' -a targets < <(targets_of "$processor" "$build" | tr -s ' \n' '\n' | sort -u) || true
  say "compiling ${#targets[@]} test programs for $processor"
  cmake --build "$build" --target "${targets[@]}"
  # Not on 7 or 8 ranks: emulated on fewer cores they take half an hour.
  ctest --test-dir "$build" --output-on-failure --no-tests=error -R "^($(IFS='|'; echo "${targets[*]}"))($|[.][^78])" "$@"
}

main "$@"
