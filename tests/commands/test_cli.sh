#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_cli.sh KOZERO MPIEXEC INPUTS CASE: one case of the command line as a user meets it, in a folder of its own.
# A case is a function below; it fails by `expect`, which says what was wanted and what came.
set -u
kozero=$1
mpiexec=$2
inputs=$3
case=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
failures=0

# expect STATUS PATTERN COMMAND...: the command ends in STATUS and says PATTERN (an extended regular expression).
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

on() {
  local ranks=$1
  shift
  $mpiexec -n "$ranks" "$kozero" "$@"
}

make_text() {
  mkdir -p text
  for i in $(seq 1 400); do echo "line $i: the quick brown fox jumps over the lazy dog, again and again."; done >text/a.txt
}

small="run.steps=12 run.dir=run model.layers=1 model.dim=16 model.heads=2 model.seq=16
       train.global_batch=6 train.micro_batch=2 train.eval_every=5 optim.warmup_steps=2 log.every=4"
tiny="$small data.text=[\"text\"]"

train_eval_generate() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'validation   loss .* bits per byte' on 2 train "$inputs/quickstart.toml" $tiny
  expect 0 'ZeRO         stage 2 on 2 ranks' cat run/log.txt
  expect 0 '^12$' sh -c 'wc -l <run/metrics.jsonl'
  expect 0 '"step":12,"tokens":1152,' tail -n 1 run/metrics.jsonl
  expect 0 'h.0.attn.c_attn.weight Dataset \{16, 48\}' h5ls -r run/weights.h5
  expect 0 'validation   loss' "$kozero" eval run
  cp out.txt first.txt
  expect 0 "$(cut -d, -f1 first.txt)" on 3 eval run/weights.h5 zero.stage=3
  expect 0 '"perplexity":' "$kozero" eval run 'data.text=["text"]' --json
  expect 0 '^line' "$kozero" generate run --prompt line --tokens 20 --temperature 0
  cp out.txt first.txt
  expect 0 "$(head -n 1 first.txt)" on 2 generate run --prompt line --tokens 20 --temperature 0
  # shellcheck disable=SC2086
  expect 0 'everything lies in run-2' "$kozero" train "$inputs/quickstart.toml" $tiny zero.stage=3
  expect 0 'dir = "run-2"' cat run-2/deck.toml
}

same_losses_on_any_ranks() {
  make_text
  for ranks in 1 2 3; do
    # shellcheck disable=SC2086
    expect 0 'everything lies' on $ranks train "$inputs/quickstart.toml" $tiny run.dir=r$ranks
    sed 's/.*"loss":\([0-9]\.[0-9]\{4\}\).*/\1/' r$ranks/metrics.jsonl >losses$ranks
  done
  expect 0 same sh -c 'cmp losses1 losses2 && echo same'
  expect 0 same sh -c 'cmp losses1 losses3 && echo same'
}

verify_agrees() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'all stages agree bit for bit' on 2 verify "$inputs/quickstart.toml" $tiny train.micro_batch=1
  cp out.txt table.txt
  expect 0 '^ +3 .* equal$' cat table.txt
}

bpe() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'vocabulary 300' "$kozero" train "$inputs/quickstart.toml" $tiny data.tokenizer=bpe:300
  expect 0 'already made' sh -c "'$kozero' prepare text out --tokenizer bpe:300 && '$kozero' prepare text out --tokenizer bpe:300"
  # shellcheck disable=SC2086
  expect 0 'tokens in 1 shards' "$kozero" train "$inputs/quickstart.toml" $small 'data.tokens=["out/train_000000.bin"]' \
    data.tokenizer=out/tokenizer.json
}

linear_demo() {
  expect 0 'largest' on 2 train "$inputs/linear_demo.toml" run.dir=run
  expect 0 'stage 2 on 2 ranks' cat run/log.txt
}

refusals() {
  make_text
  expect 2 '^\[rank 0\] error: .*did you mean stage\?$' "$kozero" train "$inputs/quickstart.toml" zero.stge=3
  cp out.txt refusal.txt
  expect 0 '^1$' sh -c 'wc -l <refusal.txt'
  expect 2 'unknown command "trian": did you mean train' "$kozero" trian
  expect 2 'usage: kozero train DECK' "$kozero" train
  expect 2 'nowhere.toml' on 2 train nowhere.toml
  expect 2 'ranks 0 and 1 disagree on run.seed: 1 and 2' $mpiexec -n 1 "$kozero" train "$inputs/quickstart.toml" : \
    -n 1 "$kozero" train "$inputs/quickstart.toml" run.seed=2
  expect 3 'missing' on 2 train "$inputs/quickstart.toml" 'data.text=["missing"]'
  expect 2 'MiB a rank and .* available' "$kozero" train "$inputs/gpt2_124m.toml" model.preset=llama-13b
  expect 2 'no trained weights' "$kozero" eval text
  expect 3 'weights.h5' sh -c "mkdir bad && cp '$inputs/quickstart.toml' bad/deck.toml && echo junk >bad/weights.h5 && '$kozero' eval bad"
  expect 4 'run' "$kozero" train "$inputs/linear_demo.toml" run.dir=/proc/run
  # shellcheck disable=SC2086
  expect 6 'not finite.*lower|not finite.*Lower' on 2 train "$inputs/quickstart.toml" $tiny optim.lr=1e38 train.grad_clip=0
  # shellcheck disable=SC2086
  expect 75 'run.max_minutes' on 2 train "$inputs/quickstart.toml" $tiny run.steps=100000 run.max_minutes=0.02
}

plan_fits() {
  expect 0 'lowest stage within' "$kozero" plan "$inputs/gpt2_124m.toml" --ranks 8
  expect 0 '"stage":3,"ranks":8' "$kozero" plan "$inputs/gpt2_124m.toml" --ranks 8 --json
  expect 0 '^2$' "$kozero" ranks "$inputs/quickstart.toml"
  expect 0 'zero.stage' "$kozero" keys
  expect 0 'usage: kozero COMMAND' "$kozero" help
}

"$case"
[ "$failures" = 0 ] && echo "$case: all as expected"
exit "$failures"
