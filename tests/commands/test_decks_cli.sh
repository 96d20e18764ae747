#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_decks_cli.sh KOZERO MPIEXEC INPUTS CASE: the decks of inputs/ as they are: each is planned or trained, and the losses
# of the quick start are the published ones. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# Fine-tuning is planned by the command in its deck: its weights are not there yet.
planned() {
  local deck
  for deck in "$inputs"/*.toml "$inputs"/demos/*.toml; do
    case $deck in
      */sweep_*.toml | */claims.toml) continue ;;
      */finetune.toml) set -- model.init=random model.preset=qwen3-0.6b model.seq=512 ;;
      *) set -- ;;
    esac
    expect 0 "^$deck: [0-9]+ parameters on [0-9]+ ranks?; the deck asks for stage [0-3]$" "$kozero" plan "$deck" "$@" \
      --rates 1,20,5
  done
  expect 0 '^8 ranks: fits as it is ' "$kozero" plan "$inputs/gpt2_124m.toml" --device h100
  expect 0 '^8 ranks: fits as it is ' "$kozero" plan "$inputs/llama3_8b.toml" --device h100
}

# The matrices, with their numbers of cases, and a step of the first case of each.
matrices() {
  local row
  for row in 'sweep_stages 8' 'sweep_bandwidth 28' 'sweep_scaling 18' 'sweep_rates 6' 'claims 23'; do
    # shellcheck disable=SC2086
    set -- $row
    expect 0 "^runs/$1: $2 cases, $2 to run: " "$kozero" sweep "$inputs/$1.toml" --dry-run
    expect 0 "^runs/$1: 1 case: 1 done, 0 failed" "$kozero" sweep "$inputs/$1.toml" --case 1 run.steps=1 \
      train.eval_every=0 train.eval_batches=1 data.cache=tokens
  done
  set -- "$inputs"/sweep_*.toml "$inputs"/claims.toml
  expect 0 '^5$' echo $#
}

# One or two steps of every deck that needs no data of the user, then fine-tuning from the quick start's weights.
trained() {
  local deck
  set -- run.steps=2 train.eval_every=0 train.eval_batches=1 data.cache=tokens
  for deck in quickstart demos/llama demos/qwen3; do
    expect 0 'output in' on 2 train "$inputs/$deck.toml" "$@" "run.dir=runs/$(basename $deck)"
  done
  expect 0 'output in' on 2 train "$inputs/demos/synthetic.toml" run.steps=2 run.dir=runs/synthetic
  expect 0 'ZeRO +stage 3 on 2 ranks' on 2 train "$inputs/stages.toml" "$@" run.dir=runs/stages zero.stage=3
  expect 0 '^model .* 4 layers, 192 channels, 6 heads, vocabulary 1024: ' on 2 train "$inputs/finetune.toml" "$@"
  expect 0 'output in runs/all_keys' "$kozero" train "$inputs/all_keys.toml" run.steps=1
}

# `keys --deck` prints inputs/all_keys.toml; a section alone has no heading.
all_keys() {
  "$kozero" keys --deck >printed.toml
  expect 0 '^as printed$' sh -c "diff '$inputs/all_keys.toml' printed.toml && echo as printed"
  expect 0 '^stage = 0 ' "$kozero" keys zero --deck
  lines 1 '^\['
  lines 0 all_keys
}

# The quick start's first four losses, and the validation loss of its end, which README.md prints rounded: the bits of
# every processor with fused multiply-adds.
first='6.953158683376387 6.935212679207325 6.870829317020252 6.778410990722477'
last=3.79305135183103

# same WANTED GOT: the texts are equal.
same() {
  [ "$1" = "$2" ] && return
  printf 'FAILED: wanted the losses %s, got %s\n' "$1" "$2"
  failures=$((failures + 1))
}

# values_of KEY RUN: the values of metrics.jsonl that are not null, separated by blanks.
values_of() { sed -nE "s/.*\"$1\":([0-9.]+),.*/\1/p" "$2/metrics.jsonl" | tr '\n' ' ' | sed 's/ $//'; }

# first_steps RANKS THREADS RUN: trains until four steps are in metrics.jsonl, then stops.
first_steps() {
  local launched
  on "$1" train "$inputs/quickstart.toml" run.threads="$2" run.dir="$3" data.cache=tokens >train.txt 2>&1 </dev/null &
  launched=$!
  until [ "$(wc -l <"$3/metrics.jsonl")" -ge 4 ] || ! kill -0 $launched; do sleep 0.1; done 2>/dev/null
  kill -TERM $launched 2>/dev/null
  wait $launched
  [ "$(wc -l <"$3/metrics.jsonl")" -ge 4 ] || { cat train.txt; failures=$((failures + 1)); }
}

# The first losses are the published ones on any number of ranks and threads.
quick_start() {
  local each
  for each in '2 1' '1 1' '3 1' '1 2'; do
    # shellcheck disable=SC2086
    set -- $each
    first_steps "$1" "$2" "runs/$1-$2"
    same "$first" "$(values_of loss "runs/$1-$2" | cut -d ' ' -f 1-4)"
  done
}

# The whole quick start, for a target of its own: `cmake --build build/release --target quick_start`.
whole_quick_start() {
  expect 0 "output in runs/quickstart" on 2 train "$inputs/quickstart.toml"
  same "$first" "$(values_of loss runs/quickstart | cut -d ' ' -f 1-4)"
  same "$last" "$(values_of val_loss runs/quickstart | sed 's/.* //')"
  sed -n '/^loss  /,$p' runs/quickstart/log.txt
}

run_case
