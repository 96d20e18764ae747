#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# cli_case.sh: sourced by the scripts beside it, with their arguments KOZERO MPIEXEC INPUTS CASE. Makes a folder for the
# case, and defines checks of commands and a tiny job. A script ends with `run_case`.
set -u
kozero=$1
mpiexec=$2
inputs=$3
case=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false XDG_CACHE_HOME=$folder/cache
failures=0

# expect STATUS PATTERN COMMAND...: the command ends with STATUS and prints PATTERN (an extended regular expression).
expect() {
  local status=$1 pattern=$2
  shift 2
  "$@" >out.txt 2>&1 </dev/null
  local came=$?
  if [ "$came" != "$status" ] || ! grep -Eq -- "$pattern" out.txt; then
    printf 'FAILED: %s\n  wanted status %s and /%s/, got status %s and:\n' "$*" "$status" "$pattern" "$came"
    sed 's/^/    /' out.txt
    failures=$((failures + 1))
  fi
}

# also PATTERN: the last command also printed this.
also() {
  if ! grep -Eq -- "$1" out.txt; then
    printf 'FAILED: the command before said no /%s/, but:\n' "$1"
    sed 's/^/    /' out.txt
    failures=$((failures + 1))
  fi
}

# lines COUNT PATTERN: COUNT lines of the last command's output match.
lines() {
  local came
  came=$(grep -Ec -- "$2" out.txt)
  [ "$came" = "$1" ] && return
  printf 'FAILED: wanted %s lines with /%s/, got %s\n' "$1" "$2" "$came"
  failures=$((failures + 1))
}

# text_of COMMAND...: only its stdout, since mpiexec mixes stdout and stderr in any order.
text_of() { "$@" 2>stderr.txt; }

on() {
  local ranks=$1
  shift
  $mpiexec -n "$ranks" "$kozero" "$@"
}

make_text() {
  mkdir -p text
  for i in $(seq 1 400); do echo "line $i: the quick brown fox jumps over the lazy dog, again and again."; done >text/a.txt
}

# The steps, losses and gradient norms of a run, with all digits.
trace() {
  sed 's/^{"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/' "$1/metrics.jsonl"
}

# A tiny job from the quick start's deck, and GPT-2 124M with a short context.
small="run.steps=12 run.dir=run model.layers=1 model.dim=16 model.heads=2 model.seq=16 data.tokenizer=bytes
       train.global_batch=6 train.micro_batch=2 train.eval_every=5 optim.warmup_steps=2 log.every=4"
tiny="$small data.text=[\"text\"]"
gpt2=("$inputs/../tests/bench/gpt2_124m_f32.toml" model.vocab=50257 run.ranks=2 run.threads=1 train.global_batch=8
      train.micro_batch=1 zero.stage=1)

run_case() {
  "$case"
  [ "$failures" = 0 ] && echo "$case: all as expected"
  exit "$failures"
}
