#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peer_checkpoint.sh [ROUNDS]: saves by KoZeRO and by torch.distributed.checkpoint, alternating, of the same state on
# the same disk: GPT-2 124M in f32 with two moments, on 2 ranks of 1 thread. Prints the seconds of a save and of an
# asynchronous save's stall, and the ratios of the medians. KOZERO_PEER_PYTHON names a python that has torch; KOZERO the
# program (default: build/release/kozero); KOZERO_BENCH_FOLDER the folder to write to (default: a temporary folder).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
python=${KOZERO_PEER_PYTHON:?names no python: give one that has torch}
rounds=${1:-3}
folder=$(mktemp -d -p "${KOZERO_BENCH_FOLDER:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

printf '%5s  %14s  %14s  %14s  %14s\n' round 'KoZeRO save s' 'torch save s' 'KoZeRO stall s' 'torch stall s'
for round in $(seq "$rounds"); do
  mpiexec -n 2 "$kozero" bench checkpoint "$here/gpt2_124m_f32.toml" run.threads=1 zero.stage=1 run.dir="$folder/ours" --runs 1 \
    --json | tail -n 1 >"$folder/json"
  sed 's/.*"save_s":\([0-9.e-]*\).*/\1/' "$folder/json" >>"$folder/our_saves"
  sed 's/.*"stall_s":\([0-9.e-]*\).*/\1/' "$folder/json" >>"$folder/our_stalls"
  "$python" "$here/torch_checkpoint.py" "$folder/theirs" 1 2>/dev/null >"$folder/line"
  cut -d' ' -f1 "$folder/line" >>"$folder/their_saves"
  cut -d' ' -f2 "$folder/line" >>"$folder/their_stalls"
  printf '%5s  %14.3f  %14.3f  %14.3f  %14.3f\n' "$round" "$(tail -n 1 "$folder/our_saves")" \
    "$(tail -n 1 "$folder/their_saves")" "$(tail -n 1 "$folder/our_stalls")" "$(tail -n 1 "$folder/their_stalls")"
done
for what in save stall; do
  awk -v what=$what -v ours="$(median "$folder/our_${what}s")" -v theirs="$(median "$folder/their_${what}s")" \
    'BEGIN { printf "medians, %s: KoZeRO %.3f s, torch %.3f s: %.2f times as fast\n", what, ours, theirs, theirs / ours }'
done
