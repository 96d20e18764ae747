#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_data_cli.sh KOZERO MPIEXEC INPUTS CASE: token shards that shrink, are damaged or have been replaced; steps that
# are skipped; steps computed again. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# flip FILE BYTE: changes one bit of a file.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  # shellcheck disable=SC2059
  printf "\\x$(printf %02x $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# Two ranks in the folders a and b: the same relative paths, different files.
in_two_folders() {
  timeout 60 $mpiexec -n 1 -wdir "$folder/a" "$kozero" "$@" : -n 1 -wdir "$folder/b" "$kozero" "$@"
}

# A shard that is cut while a run uses it: one line, status 3, no signal.
shrinks() {
  make_text
  # shellcheck disable=SC2086
  on 2 train "$inputs/quickstart.toml" $tiny run.steps=10000000 train.eval_every=0 >train.txt 2>&1 </dev/null &
  until grep -q '^step' train.txt || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
  truncate -s 1100 .tokens/*/train_000000.bin
  wait $!
  expect 3 '^\[rank [01]\] error: /.*/\.tokens/[0-9a-f]{16}/train_000000.bin: it shrank while it was in use, from [0-9]+ to 1100 bytes' \
    sh -c "cat train.txt; exit $?"
  lines 0 'Bus error|signal 7'
}

# A flipped bit in a cached shard: found when training begins or resumes, by --verify-data before anything else, by
# eval.
damaged() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny
  expect 0 'output in' on 2 train "$@" --verify-data
  flip .tokens/*/train_000000.bin 2000
  local shard='/.*/\.tokens/[0-9a-f]{16}/train_000000.bin'
  local says="$shard: bytes 0 to [0-9]+ are not what $shard.xxh3 says \\(block 1 of 1\\)"
  expect 3 "^\\[rank 0\\] error: $says" on 2 train "$@" --verify-data
  expect 2 'run-2' ls -d run-2
  expect 3 "^\\[rank 0\\] error: $says" on 2 train "$@" data.strict=true
  expect 3 "$says" on 2 train "$@" run.steps=10000000
  expect 0 'validation   loss' "$kozero" eval run
  flip cache/kozero/tokens/*/val_000000.bin 1500
  expect 3 'cache/kozero/tokens/[0-9a-f]*/val_000000.bin: bytes 0 to' on 2 eval run
  rm -r .tokens
  expect 0 'output in' on 2 train "$@" run.steps=2
}

# One id outside the vocabulary, in a part that training never reads: found in the background, and with data.strict
# before the first step.
bad_id() {
  make_text
  expect 0 'training' "$kozero" prepare text out
  rm out/train_000000.bin.xxh3
  printf '\xff\xff' | dd of=out/train_000000.bin bs=1 seek=$((1024 + 2 * 27000)) conv=notrunc 2>/dev/null
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $small 'data.tokens=["out/train_000000.bin"]' model.vocab=256 run.steps=10000000
  expect 3 'out/train_000000.bin: token 27000 is 65535, outside the vocabulary of 256' on 2 train "$@" train.eval_every=0
  expect 3 '^\[rank 0\] error: out/train_000000.bin: token 27000 is 65535' on 2 train "$@" data.strict=true run.dir=strict
  expect 2 'strict' ls -d strict
}

# Resuming with other data of as many samples is reported, or refused; with a copy of the same data it is not.
other_data() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4
  expect 0 'output in' on 2 train "$@"
  expect 0 '"sampled_hash": "[0-9a-f]{32}"' cat run/step_000000012/manifest.json
  also '"hash": "[0-9a-f]{16}"$'
  expect 0 'resume       after step 12' on 3 train "$@" checkpoint.resume=auto run.steps=13
  lines 0 '^note .*data'
  sed -i 's/quick/slick/' text/a.txt
  touch -d '+9 seconds' text/a.txt
  expect 2 '^\[rank 0\] error: the training data differ from those of run/step_000000013: their hash is [0-9a-f]{16} and was [0-9a-f]{16}; refused by data.strict = true' \
    on 2 train "$@" checkpoint.resume=auto run.steps=14 data.strict=true
  expect 0 '^step_000000013$' sh -c 'ls run | grep step_ | tail -n 1'
  expect 0 '^note         the training data differ from those of run/step_000000013: their hash is ' on 2 train "$@" \
    checkpoint.resume=auto run.steps=14
  expect 0 '^step_000000014$' sh -c 'ls run | grep step_ | tail -n 1'
}

# Steps that are skipped: ten in a row, then status 6; counted; and no checkpoint is pruned meanwhile.
skips() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny run.steps=60 checkpoint.every=2 checkpoint.keep=2 checkpoint.async=false \
    optim.lr=1e36 train.grad_clip=0 train.on_nonfinite=skip train.eval_every=0
  expect 6 'step 12: .*; the weights are those of the step before. 10 steps in a row were left out before it \(train.max_skips = 10\)' \
    on 2 train "$@"
  expect 0 '"skipped":true,"skips_in_a_row":10,"time":' tail -n 1 run/metrics.jsonl
  expect 0 '^step_000000002 step_000000004 step_000000006 step_000000008 step_000000010 $' \
    sh -c "ls run | grep step_ | tr '\n' ' '"
  expect 0 '^skipped      19 of 20 steps: a number was not finite$' "$kozero" train "$@" train.max_skips=100 run.steps=20 --json \
    run.dir=many
  also '"skipped_steps":19}$'
  expect 2 'train.max_skips = 0: ' "$kozero" train "$@" train.max_skips=0
}

# A step computed again has the bits of the metrics and checkpoints, in any stage; a changed number is reported.
replay() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=4 train.precision=bf16
  expect 0 '^step 3 of run again on 2 ranks, from the run.s beginning$' on 2 verify run --replay 3
  lines 3 ' equal$'
  expect 0 '^step 8 of run again on 2 ranks, from run/step_000000004$' on 2 verify run --replay 8 zero.stage=3
  lines 4 ' equal$'
  also 'all weights and moments are those of run/step_000000008'
  cp run/metrics.jsonl kept.jsonl
  sed -i '6s/"grad_norm":\([0-9.]\{9\}\)[0-9]*/"grad_norm":\1/' run/metrics.jsonl
  expect 1 '^\[rank 0\] error: step 6: the gradient norm is [0-9.e-]+ and was [0-9.e-]+ \(bits are those of' on 2 verify run --replay 7
  cp kept.jsonl run/metrics.jsonl
  # A valid checkpoint of another run at that step: equal metrics, other tensors.
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=4 train.precision=bf16 run.dir=other \
    optim.weight_decay=0.3
  rm -r run/step_000000008 && cp -r other/step_000000008 run/
  expect 1 '^\[rank 0\] error: parameters/[^ ]+ is not that of run/step_000000008' on 2 verify run --replay 8
  lines 4 ' equal$'
  expect 3 'run/metrics.jsonl: no step 13; the first is 1, the last 12$' on 2 verify run --replay 13
  expect 2 'nowhere/deck.toml: no readable file' on 2 verify nowhere --replay 3
  expect 2 'verify: ' on 2 verify run --replay 3 --steps 2
  # On other numbers of ranks, if bits do not depend on the number.
  expect 0 '^step 6 of run again on 1 rank, from run/step_000000004$' "$kozero" verify run --replay 6
  lines 2 ' equal$'
  expect 0 '^step 3 of run again on 3 ranks' on 3 verify run --replay 3 zero.stage=2
  lines 3 ' equal$'
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny zero.stage=1 zero.accumulation=local run.dir=local
  expect 0 '^step 3 of local again on 2 ranks' on 2 verify local --replay 3
  expect 2 '^\[rank 0\] error: local: it ran on 2 ranks, not on 1, and zero.accumulation = "local" adds in an order that depends on their number: ./kozero.sh -n 2 verify local --replay 3$' \
    "$kozero" verify local --replay 3
  expect 2 '"x"; accepted: integer >= 1; usage' "$kozero" verify run --replay x
  expect 2 '"0"; accepted: integer >= 1; usage' "$kozero" verify run --replay 0
  expect 2 '--replay: 1 required N missing; usage' "$kozero" verify run --replay
  # Only rank 0's metrics are read, whatever the other rank has at that path.
  mkdir a b && cp -rp run text a && cp -rp run text b
  sed -i 2,12d b/run/metrics.jsonl
  expect 0 '^step 3 of run again on 2 ranks' in_two_folders verify run --replay 3
  lines 3 ' equal$'
  rm run/metrics.jsonl && mkfifo run/metrics.jsonl
  expect 3 '^\[rank 0\] error: run/metrics.jsonl: not a regular file but a FIFO' timeout 20 $mpiexec -n 2 "$kozero" verify \
    run --replay 3
}

# run.check_every changes no bit, and its time is in the metrics.
checked() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny zero.accumulation=ordered
  expect 0 'output in' on 2 train "$@" run.dir=plain
  for stage in 0 1 2 3; do
    expect 0 'output in' on 2 train "$@" run.dir=checked$stage run.check_every=1 zero.stage=$stage
    expect 0 same sh -c "for run in plain checked$stage; do sed 's/.*\"loss\":\\([^,]*\\),.*\"grad_norm\":\\([^,]*\\),.*/\\1 \\2/' \$run/metrics.jsonl >\$run.txt; done
      cmp plain.txt checked$stage.txt && echo same"
  done
  expect 0 '"check":[0-9]' cat checked3/metrics.jsonl
}

# A bit of a text file flips, and its time stays: the tokens in the cache are used, unless the text is compared or read
# again.
text_flips() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny run.steps=3 train.eval_every=0
  expect 0 'output in' on 2 train "$@" run.dir=one --verify-data
  touch -r text/a.txt kept && sed -i '7s/fox/fix/' text/a.txt && touch -r kept text/a.txt
  expect 0 '^data .* from .tokens/' on 2 train "$@" run.dir=two
  for all in --verify-data data.strict=true; do
    expect 3 '^\[rank 0\] error: /.*/text/a.txt: it has the size and the time that it had when tokens were made of it, and other bytes: .* touch FILE$' \
      on 2 train "$@" run.dir=three $all
  done
  expect 3 'error: data.text: text/a.txt: it has the size and the time that it had' on 2 train "$@" run.dir=three data.val_fraction=0.2
  touch text/a.txt
  expect 0 '^data.text: text/a.txt: it has the size of the file of which tokens were made before, but other bytes$' \
    on 2 train "$@" run.dir=three
  expect 0 'output in' on 2 train "$@" run.dir=four data.strict=true
}

run_case
