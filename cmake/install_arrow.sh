#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# install_arrow.sh: fetches Arrow and its reader of Parquet files into the user's cache, once, and prints that folder.
#   cmake/install_arrow.sh                 fetch it if it is missing (a download of 53 MiB)
#   cmake/install_arrow.sh --print-prefix  only print the folder
# Headers and libraries are those of the Python wheel pyarrow, pinned by its SHA-256; nothing of Python is kept. Debian 12
# has no package of Arrow. Without it the program refuses Parquet files.
set -euo pipefail

readonly kVersion=26.0.1
readonly kSha256=39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c
readonly kPrefix=${XDG_CACHE_HOME:-$HOME/.cache}/kozero/arrow/$kVersion

fetch() {
  local work name
  mkdir -p "$(dirname "$kPrefix")"
  work=$(mktemp -d "$kPrefix.XXXXXX")
  trap "rm -rf '$work'" EXIT
  python3 -m venv "$work/venv"
  echo "pyarrow==$kVersion --hash=sha256:$kSha256" >"$work/requirements.txt"
  "$work/venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --require-hashes --dest "$work" --requirement "$work/requirements.txt"
  python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
  mkdir -p "$work/ready/lib"
  mv "$work/unpacked/pyarrow/include" "$work/ready/include"
  for name in libarrow libparquet; do
    mv "$work"/unpacked/pyarrow/$name.so.*[0-9] "$work/ready/lib"
    ln -s "$(basename "$work"/ready/lib/$name.so.*)" "$work/ready/lib/$name.so"
  done
  mkdir "$work/ready/doc"  # what a package that has these libraries must have too
  find "$work/unpacked" -path '*.dist-info/*' '(' -name 'LICENSE*' -o -name 'NOTICE*' ')' -exec mv -t "$work/ready/doc" {} +
  mv -T "$work/ready" "$kPrefix" 2>/dev/null || [[ -e $kPrefix/lib/libparquet.so ]]
}

if [[ ${1:-} != --print-prefix && ! -e $kPrefix/lib/libparquet.so ]]; then
  echo "kozero: fetching Arrow $kVersion, which reads Parquet files, into $kPrefix" >&2
  fetch >&2
fi
echo "$kPrefix"
