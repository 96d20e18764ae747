#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_generate_cli.sh KOZERO MPIEXEC INPUTS CASE: one case of `kozero generate` as a user runs it, in a folder of its
# own; arguments that are too long for a path; and the sample at the end of a training run.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# A run on two texts, so that the model learns the end of a text.
make_run() {
  make_text
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $tiny data.tokenizer=bpe:300 run.steps=30 >train.txt 2>&1 ||
    { sed 's/^/    /' train.txt; failures=$((failures + 1)); }
}

# A Hugging Face folder with the configuration of a model that no machine's memory holds. Its tensors are empty: memory
# is checked before they are read.
make_huge() {
  mkdir huge
  echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 262144, "n_head": 64, "n_positions": 64, "vocab_size": 300}' \
    >huge/config.json
  python3 - <<'PYTHON'
import json
header = json.dumps({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(16)}).encode()
with open("huge/model.safetensors", "wb") as file:
    file.write(len(header).to_bytes(8, "little") + header)
PYTHON
}

# first.txt and again.txt are equal and not empty.
same_text() {
  [ -s first.txt ] && cmp first.txt again.txt && return
  echo 'FAILED: wanted, and got:'
  sed 's/^/    /' first.txt again.txt
  failures=$((failures + 1))
}

texts() {
  make_run
  expect 0 '^line' "$kozero" generate run --prompt line --tokens 30 --temperature 0
  also '^memory +weights .*, cache .* for 1 x [0-9]+ tokens, other '
  also '^rate +prompt [0-9]+ tokens in .* tokens/s; generated 29 tokens in .* tokens/s$'
  "$kozero" generate run --prompt line --tokens 30 --temperature 0 >plain.txt 2>rate.txt
  expect 0 '^1$' sh -c 'wc -l <plain.txt'
  expect 0 '^(memory|rate) ' cat rate.txt
  # A prompt longer than model.seq = 16: only its last 16 tokens are run.
  expect 0 '^note         a prompt has 23 tokens: the model sees its last 16 \(model.seq\)$' \
    "$kozero" generate run --prompt "$(printf 'line %.0s' 1 2 3 4 5 6 7 8)" --tokens 2
  also '^rate +prompt 16 tokens in '
  # Without a prompt the model begins a text; --tokens 0 prints only the prompt.
  expect 0 '^rate +prompt 1 tokens' "$kozero" generate run --tokens 3
  expect 0 '^line$' "$kozero" generate run --prompt line --tokens 0
  # Bytes that are not text, and control characters.
  expect 0 '^a.*\\x1b\[2Jb' "$kozero" generate run --prompt "$(printf 'a\377\033[2Jb')" --tokens 1
  also "^a$(printf '\357\277\275')"
}

stages_and_ranks() {
  make_run
  "$kozero" generate run --prompt 'line 7' --tokens 25 --seed 5 >first.txt 2>/dev/null
  for stage in 0 1 2 3; do
    on 3 generate run zero.stage=$stage --prompt 'line 7' --tokens 25 --seed 5 >again.txt 2>rate.txt
    same_text
  done
  expect 0 '^rate ' sh -c "printf 'line 7\n' | $mpiexec -n 2 '$kozero' generate run --prompt - --tokens 25 --seed 5 >again.txt"
  same_text
}

prompts_of_files() {
  make_run
  "$kozero" generate run --prompt 'line 7' --tokens 12 >first.txt 2>/dev/null
  printf 'line 7\n' >prompt.txt
  "$kozero" generate run --prompt-file prompt.txt --tokens 12 >again.txt 2>/dev/null
  same_text
  expect 0 '^rate ' sh -c "'$kozero' generate run --prompt - --tokens 12 <prompt.txt >again.txt"
  same_text
  expect 3 'none.txt: cannot open: No such file' "$kozero" generate run --prompt-file none.txt
  : >empty.txt
  expect 3 'empty.txt: no line with a prompt' "$kozero" generate run --prompts empty.txt
}

several_texts() {
  make_run
  printf 'line 7\n\nthe quick\r\nfox' >prompts.txt
  expect 0 '^=== prompt 3, sample 2 ===$' "$kozero" generate run --prompts prompts.txt --samples 2 --tokens 9
  lines 6 '^=== prompt [1-3], sample [12] ===$'
  "$kozero" generate run --prompts prompts.txt --samples 2 --tokens 9 >first.txt 2>/dev/null
  "$kozero" generate run --prompts prompts.txt --samples 2 --tokens 9 --batch 1 >again.txt 2>/dev/null
  same_text
  "$kozero" generate run --prompts prompts.txt --samples 3 --tokens 9 2>/dev/null | awk '/, sample 3 ===$/ { skip = 1; next }
    /^===/ { skip = 0 } !skip' >again.txt
  same_text
  "$kozero" generate run --prompts prompts.txt --tokens 9 --json >json.txt 2>/dev/null
  expect 0 '^1$' sh -c 'wc -l <json.txt'
  expect 0 '^\{"texts":\[\{"prompt":1,"sample":1,"text":".*"tokens":9,"ids":\[.*"end":"length"\}.*"tokens_per_s":[0-9.]+\}$' \
    cat json.txt
}

# A run that has learned to repeat a digit.
make_chat_run() {
  local i
  for i in $(seq 1 100); do
    printf '{"messages": [{"role": "user", "content": "Say %s."}, {"role": "assistant", "content": "%s%s!"}]}\n' \
      $((i % 5)) $((i % 5)) $((i % 5))
  done >chat.jsonl
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $small run.dir=chat run.steps=300 model.dim=32 model.seq=160 optim.lr=0.02 \
    'data.text=["chat.jsonl"]' data.chat_template=plain data.pack=best_fit data.mask_documents=true >train.txt 2>&1 ||
    { sed 's/^/    /' train.txt; failures=$((failures + 1)); }
}

chat() {
  make_chat_run
  printf 'Say 3.\n\n \nSay 1.\r\nSay 0.' >questions.txt
  talk() { "$@" <questions.txt; }
  talk "$kozero" generate chat --chat --tokens 20 --temperature 0 >first.txt 2>notes.txt
  expect 0 '^33!$' cat first.txt
  lines 3 '^[0-4]+!$'
  expect 0 '^rate         prompt [0-9]+ tokens in' cat notes.txt
  # The history is kept: the third prompt has the first answer, and only what is new runs through the model.
  expect 0 '^\{"chat_template":"plain","turns":\[\{"question":"Say 3.","answer":"33!","prompt_ids":\[0,.*"end":"end_of_answer"\}' \
    talk "$kozero" generate chat --chat --tokens 20 --temperature 0 --json
  also '"question":"Say 0.","answer":"[0-4]+!","prompt_ids":\[0,85,115,101,114,.*51,51,33,0,85,115,101,114.*"prompt_tokens":78,'
  local stage
  for stage in 0 3; do
    talk "$kozero" generate chat --chat --tokens 20 --seed 5 --top-p 0.9 --min-p 0.01 >first.txt 2>/dev/null
    talk $mpiexec -n 3 "$kozero" generate chat zero.stage=$stage --chat --tokens 20 --seed 5 --top-p 0.9 --min-p 0.01 >again.txt 2>/dev/null
    same_text
  done
  # Beyond the context the oldest turns are left out; an answer that is cut is noted.
  expect 0 '^note         the oldest turn of the conversation is left out \(--context 60\)$' \
    talk "$kozero" generate chat --chat --tokens 20 --temperature 0 --context 60
  expect 0 '^note         the answer was cut \(--tokens 1\)$' talk "$kozero" generate chat --chat --tokens 1 --temperature 0
  expect 0 '^note         the question has 26 tokens: the model sees its last 20 \(--context\)$' \
    talk "$kozero" generate chat --chat --tokens 3 --context 20
  printf 'Say 3.\n' >questions.txt
  expect 0 '"prompt_ids":\[0,83,121,115,116,101,109,58,10,66,101,46,10,10,85,' \
    talk "$kozero" generate chat --chat --system Be. --tokens 2 --json
}

chat_refusals() {
  make_chat_run
  printf 'Say 3.\nSay \377.\n' >bad.txt
  talk() { "$@" <bad.txt; }
  # The answers before a bad line stay.
  expect 3 '^33!$' talk "$kozero" generate chat --chat --temperature 0
  also '^\[rank 0\] error: standard input:2: not UTF-8 at byte 5$'
  expect 3 '"answer":"33!"' talk $mpiexec -n 2 "$kozero" generate chat --chat --temperature 0 --json
  lines 1 'standard input:2: not UTF-8'
  printf 'a\0b\n' >bad.txt
  expect 3 'standard input:1: has a NUL character$' talk "$kozero" generate chat --chat
  expect 3 '^\[rank 0\] error: --chat: no question on standard input$' "$kozero" generate chat --chat
  expect 3 '^.rank 0. error: --system: not UTF-8 at byte 1$' "$kozero" generate chat --chat --system "$(printf '\377')"
  expect 2 'generate: --system is for --chat$' "$kozero" generate chat --system a
  expect 2 'generate: --no-thinking is for --chat$' "$kozero" generate chat --no-thinking
  expect 2 'generate: --context is for --chat$' "$kozero" generate chat --context 9
  expect 2 'data.chat_template = "plain" has no <think> blocks: only qwen3 has them$' "$kozero" generate chat --chat --no-thinking
  expect 2 'data.chat_template = "chatml": the tokenizer bytes has no token <.im_start.>' \
    "$kozero" generate chat --chat data.chat_template=chatml
  expect 2 'data.chat_template = "none": --chat needs a template$' "$kozero" generate chat --chat data.chat_template=none
  expect 2 'data.chat_template = "x": accepted: ' "$kozero" generate chat --chat data.chat_template=x
  expect 2 '--prompt excludes --chat' "$kozero" generate chat --chat --prompt a
  expect 2 '--past-end excludes --chat' "$kozero" generate chat --chat --past-end
  expect 2 '--samples excludes --chat' "$kozero" generate chat --chat --samples 2
  make_run
  expect 2 'data.chat_template = "auto": no template beside the tokenizer ".*"; give one of chatml, ' "$kozero" generate run --chat
}

# The bits of a text depend on the precision alone.
precisions() {
  make_run
  for precision in f32 bf16 fp16; do
    expect 0 '^rate' "$kozero" generate run --prompt 'line 7' --tokens 9 train.precision=$precision
    sed -n 's/^memory       weights \([0-9.]* [KM]iB\),.*/\1/p' out.txt >memory.$precision
    "$kozero" generate run --prompt 'line 7' --tokens 9 train.precision=$precision >first.txt 2>/dev/null
    on 2 generate run --prompt 'line 7' --tokens 9 train.precision=$precision zero.stage=3 >again.txt 2>/dev/null
    same_text
    "$kozero" eval run train.precision=$precision --json 2>/dev/null | grep -o '"loss":[0-9.]*' >loss.$precision
    expect 0 '^"loss":[0-9.]+$' cat loss.$precision
  done
  expect 0 '^half$' awk '{ weights[FILENAME] = $1 " " $2 }
    END { split(weights["memory.bf16"], half); split(weights["memory.f32"], whole)
          is_half = half[2] == whole[2] && half[1] && (half[1] - whole[1] / 2) ^ 2 < 0.02
          print is_half ? "half" : half[1] " of " whole[1] }' memory.bf16 memory.f32
  expect 1 differ cmp loss.f32 loss.bf16
  expect 1 differ cmp loss.bf16 loss.fp16
  "$kozero" eval run --json 2>/dev/null | grep -o '"loss":[0-9.]*' >loss.default
  expect 0 '^same$' sh -c 'cmp loss.f32 loss.default && echo same'
}

refusals() {
  make_run
  expect 2 'generate: --min-p: "2": accepted: number from 0 to 1; usage' "$kozero" generate run --min-p 2
  expect 2 'generate: --repetition-penalty: "0": accepted: number from 1e-6 to 1e6; usage' \
    "$kozero" generate run --repetition-penalty 0
  for value in abc -1 1.5 99999999999999999999; do
    expect 2 "generate: --tokens: \"$value\": accepted: integer >= 0; usage" "$kozero" generate run --tokens "$value"
  done
  expect 2 'optim.lr=3: generate does not read it; accepted are model.init, data.tokenizer, data.chat_template, train.precision, comm' "$kozero" generate run optim.lr=3
  expect 2 'generate: --samples: "0": accepted: integer >= 1; usage' "$kozero" generate run --samples 0
  expect 2 'generate: --top-p: "2": accepted: number from 0 to 1; usage' "$kozero" generate run --top-p 2
  expect 2 'generate: --temperature: "x": accepted: finite number >= 0; usage' "$kozero" generate run --temperature x
  expect 2 'the cache for 2000000000 x 16 tokens needs [0-9.]+ [GT]iB per rank and [0-9.]+ [GM]iB are available; lower --batch or --tokens$' \
    "$kozero" generate run --prompt a --samples 2000000000 --batch 2000000000
  cp -r run large && sed -i 's/^global_batch = .*/global_batch = 16777216/' large/deck.toml
  expect 2 'evaluation needs [0-9.]+ [GM]iB per rank .[0-9.]+ [GM]iB of activations. and [0-9.]+ [GM]iB are available; it fits with train.micro_batch=1$' \
    "$kozero" eval large train.micro_batch=16777216
  make_huge
  expect 2 '^\[rank 0\] error: generation needs [0-9.]+ TiB per rank .[0-9.]+ TiB of parameters. and [0-9.]+ [GM]iB are available; use more ranks with zero.stage=3$' \
    "$kozero" generate huge --prompt a data.tokenizer=bytes
  expect 2 '--prompts? excludes --prompt' \
    "$kozero" generate run --prompt a --prompts b
}

# Ends with a documented status and one line, not by an abort (134) or an internal error (1).
long_arguments() {
  make_run
  local long command
  long=$(printf 'word %.0s' $(seq 200))
  expect 0 '^word word' "$kozero" generate run --prompt "$long" --tokens 2
  long=$(printf 'x%.0s' $(seq 300))
  for command in train verify plan eval generate inspect export import keys ranks "bench step"; do
    # shellcheck disable=SC2086
    "$kozero" $command "$long" "$long" >out.txt 2>&1 </dev/null
    case $? in
      2 | 3 | 4) also xxxx ;;
      *) echo "FAILED: $command of a long argument:"; cat out.txt; failures=$((failures + 1)) ;;
    esac
    lines 1 .
  done
  expect 3 "$long/tokens.json: File name too long" "$kozero" prepare text/a.txt "$long"
  expect 2 "unknown command" "$kozero" "$long"
  # shellcheck disable=SC2086
  expect 2 'overrides are written section.key=value' "$kozero" train "$inputs/quickstart.toml" $tiny "$long"
}

# The sample at the end: after the run is finished, by rank 0 alone, within a time, ended by a signal, without control
# characters.
sample() {
  make_text
  # shellcheck disable=SC2086
  expect 0 '^a sample of what it writes, in 240 tokens and 5 s at most [(]log.sample[)]:$' on 2 train "$inputs/quickstart.toml" $tiny
  lines 0 "$(printf '[\001-\010\013-\037\177]')"
  expect 0 '^after$' awk '/^output in/ { end = 1 } /^a sample/ && end { print "after" }' run/log.txt
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny log.sample=0 run.dir=none
  lines 0 'sample'
  expect 0 '^no sample of text, since the ranks would gather all weights for each token; kozero generate three writes one$' \
    on 2 train "$inputs/quickstart.toml" $tiny zero.stage=3 run.dir=three
  expect 0 '^no sample of text, since the data have no tokenizer$' "$kozero" train "$inputs/demos/linear_demo.toml" \
    run.dir=linear run.steps=1 log.sample=10
  : >status
  KOZERO_STATUS_FILE=status $mpiexec -n 2 "$kozero" train "$inputs/quickstart.toml" $tiny model.dim=64 log.sample=10000 run.dir=long >long.txt 2>&1 &
  local run=$!
  for _ in $(seq 200); do
    ! grep -qs '^a sample' long.txt || break
    sleep 0.1
  done
  expect 0 '"state": ?"finished"' cat long/status.json
  expect 0 '^0$' cat status
  kill -TERM "$run"
  expect 0 '^ended$' sh -c "timeout 4 tail --pid=$run -f /dev/null && echo ended"
  wait "$run"
  expect 0 '^0 of the launcher$' echo "$? of the launcher"
  expect 0 '^note +the sample ends after [0-9]+ tokens: SIGTERM came$' cat long.txt
  expect 0 '"state": ?"finished"' cat long/status.json
}

run_case
