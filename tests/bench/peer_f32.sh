#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peer_f32.sh [RUNS]: KoZeRO beside PyTorch on the same cores, in turn: GPT-2 124M's shape, f32, 4 x 256 tokens a step, one
# process with 2 threads. Prints each run's tokens per second and the ratio of the medians.
# KOZERO_PEER_PYTHON names a python that has torch; KOZERO the program (build/release/kozero unless said).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
python=${KOZERO_PEER_PYTHON:?names no python: give one that has torch}
runs=${1:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

printf '%4s  %16s  %16s\n' run 'KoZeRO tokens/s' 'PyTorch tokens/s'
for run in $(seq "$runs"); do
  OMP_NUM_THREADS=2 "$kozero" train "$here/gpt2_124m_f32.toml" run.dir="$folder/run$run" --json | tail -n 1 |
    sed 's/.*"tokens_per_s":\([0-9.]*\).*/\1/' >>"$folder/ours"
  rm -rf "$folder/run$run"
  "$python" "$here/torch_gpt2.py" 2 >>"$folder/theirs"
  printf '%4s  %16.1f  %16.1f\n' "$run" "$(tail -n 1 "$folder/ours")" "$(tail -n 1 "$folder/theirs")"
done
awk -v ours="$(median "$folder/ours")" -v theirs="$(median "$folder/theirs")" \
  'BEGIN { printf "medians: KoZeRO %.1f, PyTorch %.1f: %.2f times as fast\n", ours, theirs, ours / theirs }'
