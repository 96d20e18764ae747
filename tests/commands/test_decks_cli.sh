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
      */finetune.toml) set -- model.init=random model.preset=qwen3-0.6b model.seq=512 ;;
      *) set -- ;;
    esac
    expect 0 "^$deck: [0-9]+ parameters on [0-9]+ ranks?; the deck asks for stage [0-3]$" "$kozero" plan "$deck" "$@" \
      --rates 1,20,5
  done
  expect 0 '^8 ranks: fits as it is ' "$kozero" plan "$inputs/gpt2_124m.toml" --device h100
  expect 0 '^8 ranks: fits as it is ' "$kozero" plan "$inputs/llama3_8b.toml" --device h100
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

# The quick start's first losses, and the validation loss of its end, by the class of bits: what computes f32 products,
# and the compiler. Of another class each loss must agree to 4 digits. README.md prints the last one.
read_published() {
  class="$(sed -nE 's/^precision +f32, products by ([^,]*),.*/\1/p' "$1/log.txt" | head -n 1), $("$kozero" --version |
    sed -nE 's/^compiler +([^,]*),.*/\1/p')"
  case $class in
    'AVX-512, GNU 12.2.0') published='FIRST' last=LAST ;;
    *) published='FIRST' last=LAST class='' ;;
  esac
}

# same_losses PUBLISHED TRAINED: equal, or of another class close.
same_losses() {
  if [ -n "$class" ]; then
    expect 0 "^the published losses$" sh -c "[ '$1' = '$2' ] && echo the published losses || { echo '$2'; false; }"
  else
    expect 0 '^close to the published losses$' python3 -c '
import sys
published, trained = (list(map(float, text.split())) for text in sys.argv[1:])
assert len(published) == len(trained) and all(abs(a / b - 1) < 1e-4 for a, b in zip(published, trained)), trained
print("close to the published losses")' "$1" "$2"
  fi
}

# values_of KEY RUN: the values of metrics.jsonl that are not null, separated by blanks.
values_of() { sed -nE "s/.*\"$1\":([0-9.]+),.*/\1/p" "$2/metrics.jsonl" | tr '\n' ' ' | sed 's/ $//'; }

# The run stops after each step, and goes on with other ranks and threads: it has the losses of a run that never stops.
quick_start() {
  local each
  for each in '1 1' '2 1' '3 1' '1 2' '2 2'; do
    # shellcheck disable=SC2086
    set -- $each
    expect 75 'run.max_minutes' on "$1" train "$inputs/quickstart.toml" run.threads="$2" run.max_minutes=1e-9 \
      checkpoint.resume=auto
  done
  read_published runs/quickstart
  same_losses "$published" "$(values_of loss runs/quickstart)"
}

# The whole quick start, for a target of its own: `cmake --build build/release --target quick_start`.
whole_quick_start() {
  expect 0 "output in runs/quickstart" on 2 train "$inputs/quickstart.toml"
  read_published runs/quickstart
  same_losses "$published" "$(values_of loss runs/quickstart | cut -d ' ' -f 1-5)"
  same_losses "$last" "$(values_of val_loss runs/quickstart | sed 's/.* //')"
  grep -E '^(memory|loss|validation) ' runs/quickstart/log.txt
}

run_case
