#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# install_nvidia_wheels.sh: fetches what a CUDA toolkit may lack into the user's cache, once, and prints that folder:
# the headers of cuDNN's front end are in its include, cuobjdump is in its bin.
#   cmake/install_nvidia_wheels.sh                 fetch them if they are missing
#   cmake/install_nvidia_wheels.sh --print-prefix  only print the folder
# Both are in NVIDIA's wheels, pinned by their SHA-256. Without the first the program attends by kernels of its own;
# tests/kernels/gpu_kernels.py needs the second, unless the toolkit has it.
set -euo pipefail

readonly kFrontend=1.32.0
readonly kFrontendSha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
readonly kCuobjdump=13.2.51
readonly kCuobjdumpSha256=95c69d3ddf0c2c1f535ec44c3433a66aeee19f588d9d22f73356e20b25f12b50
readonly kPrefix=${XDG_CACHE_HOME:-$HOME/.cache}/kozero/nvidia/$kFrontend-$kCuobjdump

fetch() {
  local work wheel
  mkdir -p "$(dirname "$kPrefix")"
  work=$(mktemp -d "$kPrefix.XXXXXX")
  trap "rm -rf '$work'" EXIT
  python3 -m venv "$work/venv"
  printf '%s\n' "nvidia-cudnn-frontend==$kFrontend --hash=sha256:$kFrontendSha256" \
    "nvidia-cuda-cuobjdump==$kCuobjdump --hash=sha256:$kCuobjdumpSha256" >"$work/requirements.txt"
  "$work/venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --require-hashes --dest "$work" \
    --requirement "$work/requirements.txt"
  for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked"; done
  mkdir -p "$work/ready/bin"
  mv "$work/unpacked/include" "$work/ready/include"
  install -m 755 "$work/unpacked/nvidia/cu13/bin/cuobjdump" "$work/ready/bin"
  mv -T "$work/ready" "$kPrefix" 2>/dev/null || [[ -e $kPrefix/include/cudnn_frontend.h ]]
}

if [[ ${1:-} != --print-prefix && ! -e $kPrefix/include/cudnn_frontend.h ]]; then
  echo "kozero: fetching cuDNN's front end $kFrontend and cuobjdump $kCuobjdump into $kPrefix" >&2
  fetch >&2
fi
echo "$kPrefix"
