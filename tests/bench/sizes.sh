#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# sizes.sh [--runs N] [section.key=value ...]: the rate of each kernel of a training step at three sizes of GPT-2, 51,
# 124 and 354 million parameters. A kernel whose time grows faster than its operations or bytes has a rate that falls.
# KOZERO is the program (default: build/release/kozero).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
runs=5
if [[ ${1-} == --runs ]]; then runs=$2; shift 2; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# of_size LAYERS DIM HEADS: the table of `bench kernels`.
of_size() {
  local layers=$1 dim=$2 heads=$3
  shift 3
  "$kozero" bench kernels "$here/gpt2_124m_f32.toml" model.preset=none model.layers="$layers" model.dim="$dim" \
    model.heads="$heads" --runs "$runs" "$@" >"$folder/$dim"
}

of_size 8 512 8 "$@"
of_size 12 768 12 "$@"
of_size 24 1024 16 "$@"
head -n 1 "$folder/768"
awk '
  FNR == 1 { size++ }
  /FLOP\/s|GB\/s/ && !/^step share|in all/ {
    name = substr($0, 1, 38)
    split(substr($0, 71), field)
    if (size == 1) order[++count] = name
    rate[name, size] = field[4]
    unit[name] = field[5]
  }
  END {
    printf "%-38s%12s%12s%12s  %-8s%18s\n", "kernel", "8 x 512", "12 x 768", "24 x 1024", "", "largest / smallest"
    for (i = 1; i <= count; i++) {
      name = order[i]
      printf "%s%12.1f%12.1f%12.1f  %-8s%17.2fx\n", name, rate[name, 1], rate[name, 2], rate[name, 3], unit[name],
             rate[name, 3] / rate[name, 1]
    }
  }' "$folder/512" "$folder/768" "$folder/1024"
for dim in 512 768 1024; do printf '%s channels: ' "$dim"; tail -n 1 "$folder/$dim"; done
