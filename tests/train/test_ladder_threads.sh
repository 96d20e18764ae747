#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_ladder_threads.sh KOZERO MPIEXEC INPUTS CASE: the ladder (stages 0 to 3 give equal bits) as users start it: on 1,
# 2 and 3 ranks with the default number of threads, which depends on the number of ranks. All give the same bits. With
# the processor's tile units, and without (KOZERO_TILE_UNITS=none), where oneDNN would choose kernels for AVX2.
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

no_units() {
  export KOZERO_TILE_UNITS=none DNNL_MAX_CPU_ISA=AVX2
  all_models
}

run_case
