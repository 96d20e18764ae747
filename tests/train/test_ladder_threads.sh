#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_ladder_threads.sh KOZERO MPIEXEC INPUTS CASE: the ladder (stages 0 to 3 give equal bits) as users start it: on 1,
# 2 and 3 ranks with the default number of threads, which depends on the number of ranks. All give the same bits, with
# the processor's tile units, and with those above AVX2 or base hidden (KOZERO_TILE_UNITS). Units with fused
# multiply-adds agree bit for bit in f32 and fp16, and in bf16 with run.products = "portable".
. "$(dirname "$0")/../commands/cli_case.sh"
unset OMP_NUM_THREADS OMP_PROC_BIND

# climb OVERRIDE...: verify on 1, 2 and 3 ranks, each in a separate program.
climb() {
  local ranks
  rm -f bits
  for ranks in 1 2 3; do
    # shellcheck disable=SC2086
    expect 0 '^all stages agree bit for bit on [123] ranks? of [0-9]+ threads?' on "$ranks" verify "$inputs/quickstart.toml" \
      $tiny model.layers=2 model.dim=64 model.seq=128 train.global_batch=24 train.micro_batch=8 --steps 2 \
      --reference bits "$@"
    lines 4 ' equal$'
  done
}

all_models() {
  make_text
  climb
  climb model.arch=llama model.kv_heads=1 train.precision=bf16
  climb model.arch=qwen3 train.precision=fp16
}

units() { all_models; }

avx2() {
  export KOZERO_TILE_UNITS=AVX2
  all_models
}

base() {
  export KOZERO_TILE_UNITS=base
  all_models
}

# with_units NAME OVERRIDE...: verify on one rank, compared with the call before; NAME hides units, "all" hides none.
with_units() {
  local units=$1
  shift
  if [ "$units" = all ]; then unset KOZERO_TILE_UNITS; else export KOZERO_TILE_UNITS=$units; fi
  # shellcheck disable=SC2086
  expect 0 '^all stages agree bit for bit on 1 rank' "$kozero" verify "$inputs/quickstart.toml" $tiny model.layers=2 \
    model.dim=64 model.seq=128 train.global_batch=24 train.micro_batch=8 --steps 2 --reference bits "$@"
  lines 4 ' equal$'
}

# The trace in `bits` has the losses, gradient norms and weights of all steps.
same_bits_on_units() {
  make_text
  for deck in train.precision=f32 'model.arch=qwen3 train.precision=fp16' \
    'model.arch=llama model.kv_heads=1 train.precision=bf16 run.products=portable'; do
    rm -f bits
    for units in AVX2 AVX-512 all; do
      # shellcheck disable=SC2086
      with_units "$units" $deck
    done
  done
}

run_case
