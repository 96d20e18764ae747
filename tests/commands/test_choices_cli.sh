#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_choices_cli.sh KOZERO MPIEXEC INPUTS CASE: `kozero eval --choices` as a user runs it, on any ranks and stages, and
# the loss of held-out answers of conversations.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

make_run() {
  make_text
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $tiny run.steps=30 >train.txt 2>&1 ||
    { sed 's/^/    /' train.txt; failures=$((failures + 1)); }
}

# Right endings continue the text that the model saw; some contexts are longer than model.seq = 16.
make_items() {
  for i in $(seq 1 23); do
    printf '{"ctx": "line %s: the quick brown", "endings": ["fox jumps", "zzz qq", "%s"], "label": %s}\n' "$i" \
      "$(printf 'x%.0s' $(seq $((i % 5 + 1))))" $((i % 2 ? 0 : 2))
  done >items.jsonl
}

choices() {
  make_run
  make_items
  expect 0 '^choices      acc 0\.[0-9]{4} \+- 0\.[0-9]{4}, acc_norm 0\.[0-9]{4} \+- 0\.[0-9]{4}, 23 items$' \
    "$kozero" eval run --choices items.jsonl
  "$kozero" eval run --choices items.jsonl --json >first.json 2>/dev/null
  expect 0 '^\{"num_items":23,"acc":0\.[0-9]+,"acc_stderr":0.*"items":\[\{"line":1,"label":0,"choice":[0-2],"choice_norm":[0-2],"log_likelihoods":\[-[0-9.]+,' \
    cat first.json
  local ranks stage
  for ranks in 2 3; do
    for stage in 0 3; do
      on $ranks eval run zero.stage=$stage --choices items.jsonl --json >again.json 2>/dev/null
      expect 0 '^same$' sh -c 'cmp first.json again.json && echo same'
    done
  done
  # An item alone has the bits that it has among others.
  sed -n 7p items.jsonl >one.jsonl
  scores=$(sed 's/.*"line":7,[^[]*\(\[[^]]*\]\).*/\1/' first.json)
  expect 0 "^\"log_likelihoods\":\\$scores\$" sh -c "'$kozero' eval run --choices one.jsonl --json 2>/dev/null | grep -o '\"log_likelihoods\":[^]]*]'"
  sed 's/, "label": [0-9]//' items.jsonl >unlabeled.jsonl
  expect 0 '^choices      23 items without labels: --json prints the choices$' "$kozero" eval run --choices unlabeled.jsonl
  expect 0 '"acc":null,"acc_stderr":null,.*"label":null,"choice":' "$kozero" eval run --choices unlabeled.jsonl --json
}

refusals() {
  make_run
  make_items
  expect 3 '^\[rank 0\] error: none.jsonl: cannot open: No such file' on 2 eval run --choices none.jsonl
  lines 1 .
  { sed -n 1,3p items.jsonl; echo '{"ctx": "a", "endings": ["b"]}'; sed -n 4p items.jsonl; echo '{'; } >bad.jsonl
  expect 3 'bad.jsonl:4: "endings" is not a list of two or more texts; 1 more bad row: 6$' on 2 eval run --choices bad.jsonl
  lines 1 .
  echo '{"ctx": "a", "endings": ["b", "more than the 16 bytes of a window"]}' >long.jsonl
  expect 3 'long.jsonl:1: endings\[1\]: an ending has 35 tokens, more than the 16 positions of the model$' \
    on 2 eval run --choices long.jsonl
  lines 1 .
  expect 2 'eval: --choices excludes data.text, data.source and data.tokens$' \
    "$kozero" eval run --choices items.jsonl 'data.text=["text"]'
}

# The loss of the answers alone: that of the same tokens, whoever asks and with whatever sources beside them.
answers() {
  local i
  for i in $(seq 1 120); do
    printf '{"messages": [{"role": "user", "content": "What is %s?"}, {"role": "assistant", "content": "Always %s."}]}\n' \
      "$i $((i * i))" "$((i % 3))"
  done >chat.jsonl
  make_text
  # shellcheck disable=SC2086
  expect 0 'which alone count' "$kozero" train "$inputs/quickstart.toml" $small 'data.text=["chat.jsonl"]' \
    data.chat_template=plain optim.lr=0.01
  # "Always 0." and the token that ends it: 10 targets per conversation.
  expect 0 '^given data   loss [0-9.]+, perplexity [0-9.]+, 1200 tokens$' "$kozero" eval run 'data.text=["chat.jsonl"]'
  also '^note         only answers count: 1,200 of [0-9,]+ targets$'
  local loss
  loss=$(grep -o 'loss [0-9.]*' out.txt)
  lines 0 'bits per byte'
  expect 0 "^given data   $loss, .* 1200 tokens" on 3 eval run 'data.text=["chat.jsonl"]' zero.stage=3
  sed 's/What is/How is/' chat.jsonl >more.jsonl
  # A run that was trained on text evaluates conversations if the template is given.
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $tiny run.dir=plain >train.txt 2>&1
  expect 0 '^given data   loss .*, 1200 tokens$' "$kozero" eval plain 'data.text=["chat.jsonl"]' data.chat_template=plain
  expect 0 '"sources":\{"talk":\{"loss":[0-9.]+,"perplexity":[0-9.]+,"bits_per_byte":null,"tokens":1200\},"more":' \
    "$kozero" eval run 'data.source=[{name="talk", text=["chat.jsonl"]}, {name="more", text=["more.jsonl"]}]' --json
}

run_case
