#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# generation.sh [--runs N] [--tokens N] [--batch N] [--precision f32|bf16]: `kozero generate` beside transformers'
# generate with its cache, on one model (GPT-2 124M's shape), one prompt of 240 bytes, one byte per token, and 2 threads.
# The runs alternate. First compares the texts, untimed; in f32 they must be equal. Prints each run's new tokens per
# second, including the time of the prompt, then medians and their ratio. Both take the likeliest token. --batch: N
# copies of the prompt at once.
# KOZERO_PEER_PYTHON names a python that has torch and transformers; KOZERO the program (default: build/release/kozero).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
python=${KOZERO_PEER_PYTHON:?names no python: give one that has torch and transformers}
runs=5 tokens=64 batch=1 precision=f32
while (($# > 0)); do
  case $1 in
    --runs) runs=$2 ;;
    --tokens) tokens=$2 ;;
    --batch) batch=$2 ;;
    --precision) precision=$2 ;;
    *) echo "generation.sh: no argument '$1'; accepted are --runs N, --tokens N, --batch N, --precision P" >&2; exit 2 ;;
  esac
  shift 2
done
export OMP_NUM_THREADS=2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# field NAME: the value of NAME in the JSON line on standard input.
field() { sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" | tail -n 1; }

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

peer() {
  "$python" "$here/torch_generate.py" "$folder/model" --prompt "$folder/prompt" --batch "$batch" --precision "$precision" \
    "$@" 2>/dev/null
}

ours() {
  "$kozero" generate "$folder/model" run.threads=2 train.precision="$precision" data.tokenizer=bytes \
    --prompts "$folder/prompts" --batch "$batch" --tokens "$tokens" --temperature 0 --past-end --json 2>/dev/null
}

for _ in 1 2 3 4 5 6; do printf 'It was the best of times, it was the wor '; done | head -c 240 >"$folder/prompt"
for _ in $(seq "$batch"); do cat "$folder/prompt"; echo; done >"$folder/prompts"
peer --make
ours >"$folder/ours"
peer --tokens 32 --check "$folder/ours"
for _ in $(seq "$runs"); do
  ours >"$folder/line"
  awk -v prompt="$(field prompt_s <"$folder/line")" -v steps="$(field step_s <"$folder/line")" -v new=$((tokens * batch)) \
    'BEGIN { printf "%.2f\n", new / (prompt + steps) }' >>"$folder/kozero.whole"
  field tokens_per_s <"$folder/line" >>"$folder/kozero.step"
  peer --tokens "$tokens" >"$folder/line"
  field whole_tokens_per_s <"$folder/line" >>"$folder/transformers.whole"
  field step_tokens_per_s <"$folder/line" >>"$folder/transformers.step"
  for name in kozero transformers; do
    printf '  %-14s %8.2f tokens/s with the prompt, %8.2f behind it\n' "$name" "$(tail -n 1 "$folder/$name.whole")" \
      "$(tail -n 1 "$folder/$name.step")"
  done
done
for part in whole step; do
  awk -v ours="$(median "$folder/kozero.$part")" -v theirs="$(median "$folder/transformers.$part")" -v part="$part" 'BEGIN {
    printf "medians, %s: KoZeRO %.2f, transformers %.2f tokens/s: %.2f times as fast\n",
           part == "whole" ? "with the prompt" : "behind the prompt", ours, theirs, ours / theirs }'
done
