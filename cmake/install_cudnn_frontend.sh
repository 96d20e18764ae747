#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# install_cudnn_frontend.sh: fetches the headers of cuDNN's front end into the user's cache, once, and prints where they lie.
#   cmake/install_cudnn_frontend.sh                 fetch where it is missing
#   cmake/install_cudnn_frontend.sh --print-prefix  only say where they lie or would lie
# They are in NVIDIA's wheel, pinned by its SHA-256. Without them the program attends by kernels of its own.
set -euo pipefail

readonly kVersion=1.32.0
readonly kSha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
readonly kPrefix=${XDG_CACHE_HOME:-$HOME/.cache}/kozero/cudnn-frontend/$kVersion

fetch() {
  local work
  mkdir -p "$(dirname "$kPrefix")"
  work=$(mktemp -d "$kPrefix.XXXXXX")
  trap "rm -rf '$work'" EXIT
  python3 -m venv "$work/venv"
  echo "nvidia-cudnn-frontend==$kVersion --hash=sha256:$kSha256" >"$work/requirements.txt"
  "$work/venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --require-hashes --dest "$work" --requirement "$work/requirements.txt"
  python3 -m zipfile -e "$(echo "$work"/*.whl)" "$work/unpacked"
  mkdir "$work/ready"
  mv "$work/unpacked/include" "$work/ready/include"
  mv -T "$work/ready" "$kPrefix" 2>/dev/null || [[ -e $kPrefix/include/cudnn_frontend.h ]]
}

if [[ ${1:-} != --print-prefix && ! -e $kPrefix/include/cudnn_frontend.h ]]; then
  echo "kozero: fetching cuDNN's front end $kVersion into $kPrefix" >&2
  fetch >&2
fi
echo "$kPrefix"
