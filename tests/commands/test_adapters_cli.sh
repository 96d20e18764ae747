#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_adapters_cli.sh KOZERO MPIEXEC INPUTS CASE: training of adapters on a frozen base: what a run writes, its bits
# after a kill on other ranks, a quantized base, and bad input. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# The deck of the adapters of the run `base`, which is trained first.
make_base() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in base' on 1 train "$inputs/quickstart.toml" $tiny run.dir=base model.layers=3
  cat >lora.toml <<'END'
[run]
steps = 12
dir = "run"

[model]
init = "base"

[model.lora]
rank = 3
dropout = 0.1

[data]
text = ["text"]

[train]
global_batch = 6
micro_batch = 2

[optim]
schedule = "constant"
warmup_steps = 0

[checkpoint]
every = 30
END
}

# A checkpoint has the adapters alone; killed at any moment, the run goes on with other ranks and in another stage.
killed() {
  make_base
  "$kozero" train lora.toml run.steps=10000000 train.recompute=full >train.txt 2>&1 </dev/null &
  until [ -d run/step_000000060 ] || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
  kill -9 $!
  wait $! 2>/dev/null
  local at last
  at=$(find run -name 'step_?????????' | sed 's/.*step_0*//' | sort -n | tail -n 1)
  last=$((at + 7))
  expect 0 "resume       after step $at" on 3 train lora.toml checkpoint.resume=auto run.steps=$last zero.stage=3
  lines 0 '^note .*(bits|model.init)'
  also '^trained      [0-9]+ of 0.02 M parameters; adapters of rank 3, scaled by 5.33333, of all-linear$'
  expect 0 'output in' on 2 train lora.toml run.steps=$last run.dir=continuous checkpoint.every=0 zero.stage=2
  for run in run continuous; do trace $run >$run.txt; done
  expect 0 '^same$' sh -c 'cmp run.txt continuous.txt && echo same'
  expect 0 '^12 adapters, 0 others$' sh -c "strings -n 6 run/step_*$last/state.h5 | grep -Eo '^h\.[0-9].*weight' | sort -u |
    awk '/lora_[AB]/ { ++a; next } { ++o } END { print a / 2 \" adapters, \" o + 0 \" others\" }'"
  expect 0 'all weights and moments are those of run' on 2 verify run --replay $last
  expect 0 'validation   loss' on 2 eval run
  mv base moved
  expect 2 '/base: nothing is there; .*; it is model.init, the base of the adapters: give its place now by model.init=PATH$' on 2 eval run
  expect 0 'validation   loss' on 2 eval run model.init=moved
  expect 2 'model.init: these weights are whole; accepted: only with the adapters of a run' on 2 eval moved model.init=moved
  mv moved base
  expect 0 '.' "$kozero" generate run --prompt line --tokens 4
  # shellcheck disable=SC2086
  expect 0 'output in base2' on 1 train "$inputs/quickstart.toml" $tiny run.dir=base2 model.layers=3 run.seed=5
  expect 2 'base2": its weights are not those below the adapters of run/step_[0-9]+ \(hash [0-9a-f]{32}, not [0-9a-f]{32}\); accepted: the model with which their training began$' \
    on 2 train lora.toml checkpoint.resume=auto run.steps=$((last + 2)) model.init=base2
  expect 2 'error: .*model.init = "run": it holds adapters, not whole weights; accepted: ' on 2 train lora.toml model.init=run run.dir=other
  # shellcheck disable=SC2086
  expect 0 'output in wide' on 1 train "$inputs/quickstart.toml" $tiny run.dir=wide model.layers=3 model.dim=32
  for command in 'eval run' 'generate run --prompt line --tokens 4'; do
    # shellcheck disable=SC2086
    expect 2 'model.init = "wide[^"]*": another base than that of the adapters of run/[^ ]+: model.dim is 32 and was 16; .*; accepted: the model with which their training began$' \
      on 2 $command model.init=wide
  done
}

# A base in 8 and in 4 bits: the same bits on any ranks, less memory, eval in the same type.
quantized() {
  make_base
  for type in int8 nf4; do
    expect 0 "; the base in $type$" on 2 train lora.toml model.base_dtype=$type run.dir=$type-2 zero.stage=3 checkpoint.every=0
    expect 0 'output in' on 3 train lora.toml model.base_dtype=$type run.dir=$type-3 zero.stage=1 checkpoint.every=0
    for run in $type-2 $type-3; do trace $run >$run.txt; done
    expect 0 '^same$' sh -c "cmp $type-2.txt $type-3.txt && echo same"
    expect 0 'validation   loss' on 2 eval $type-2
  done
  expect 0 'all stages agree bit for bit' on 2 verify lora.toml model.base_dtype=nf4
  also ' 3  +shm .* 0\.[0-9]*[1-9] '
  expect 0 '^parameters ' "$kozero" plan "$inputs/../tests/bench/gpt2_124m_f32.toml" --ranks 2 model.lora.rank=8 model.base_dtype=nf4
  also '^model.lora leaves 1179648 parameters to train and saves '
}

# One line for each bad input, and no folder.
refusals() {
  make_base
  refuse() { expect 2 "^\[rank 0\] error: .*$1" "$kozero" train lora.toml run.dir=refused "${@:2}"; }
  refuse 'model.lora.rank = 0: accepted: integer 1 to ' model.lora.rank=0
  refuse 'model.lora.targets = \["c_atn"\]: "c_atn" is the name of no linear map of a block; did you mean "c_attn"\?$' model.lora.targets=c_atn
  refuse 'model.lora.targets = \["lm_head"\]: "lm_head" is the name of no linear map' model.lora.targets=lm_head
  refuse 'optim.freeze = \["wte.\*"\]: with model.lora.rank only adapters are trained' 'optim.freeze=wte.*'
  refuse 'model.lora.factor = 3: .*no such key' model.lora.factor=3
  refuse 'model.base_dtype = "fp4": accepted: none \| int8 \| nf4' model.base_dtype=fp4
  # shellcheck disable=SC2086
  set -- "$kozero" train "$inputs/quickstart.toml" $tiny run.dir=refused
  expect 2 'model.lora.alpha = 3.0: nothing reads it without model.lora.rank' "$@" model.lora.alpha=3
  expect 2 'model.base_dtype = "nf4": only the base of adapters is quantized' "$@" model.base_dtype=nf4
  expect 2 '\[lora\]: no such section; did you mean \[model.lora\]\?|lora.rank.*did you mean' "$@" lora.rank=3
  expect 2 'refused' ls -d refused
}

run_case
