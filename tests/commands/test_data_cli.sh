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

# Two sources, one of them repeated: training, the written deck, resuming with the same and with another repeat, eval.
sources() {
  make_text
  seq 1 900 >extra.txt
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" ${tiny%data.text=*} checkpoint.every=4 optim.schedule=constant
  local list='data.source=[{text="text"}, {text="extra.txt", repeat=3}]'
  expect 0 '^data .* an epoch has 1 x data.source\[0\] \([0-9]+ tokens\), 3 x data.source\[1\] \([0-9]+ tokens\)' \
    on 2 train "$@" "$list"
  expect 0 '^source = \[\{text = \["/.*/text"\], repeat = 1\}, \{text = \["/.*/extra.txt"\], repeat = 3\}\]' cat run/deck.toml
  expect 0 'resume       after step 12' on 3 train "$@" "$list" checkpoint.resume=auto run.steps=13
  lines 0 '^note .*data'
  expect 0 'output in' on 1 train "$@" "$list" run.steps=13 run.dir=continuous
  expect 0 '^same$' sh -c 'for run in run continuous; do tail -n 1 $run/metrics.jsonl | grep -o "\"loss\":[^,]*"; done | uniq | wc -l | grep -qx 1 && echo same'
  expect 2 'their hash is [0-9a-f]{16} and was [0-9a-f]{16}' on 2 train "$@" "${list%3\}\]}2}]" checkpoint.resume=auto run.steps=14 \
    data.strict=true
  expect 0 'validation   loss' on 2 eval run
  expect 0 'loss' on 2 eval run 'data.source=[{text="extra.txt", repeat=3}]'
  expect 3 '^\[rank 0\] error: data.source\[1\].text: none.txt: no such file or folder' \
    on 2 train "$@" 'data.source=[{text="text"}, {text="none.txt"}]' run.dir=other
}

# Documents that are masked: other losses, the same on any ranks, after a resume, and in eval; decks without a token
# that begins a document.
documents() {
  make_text
  for i in $(seq 1 300); do
    yes "line $i: short." | head -n $((i * i % 17)) >text/"$i".txt
    [ -s text/"$i".txt ] || echo x >text/"$i".txt
  done
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4 optim.schedule=constant
  local last='"loss":[^,]*'
  expect 0 'output in' on 2 train "$@" run.dir=plain
  expect 0 '^data .*; attention and positions stay inside a document$' on 2 train "$@" data.mask_documents=true
  expect 0 '^mask_documents = true' cat run/deck.toml
  expect 0 '^2$' sh -c "tail -qn 1 run/metrics.jsonl plain/metrics.jsonl | grep -o '$last' | sort -u | wc -l"
  expect 0 '^validation   loss' on 3 eval run
  local loss
  loss=$(grep -o 'loss [0-9.]*, perplexity [0-9.]*' out.txt)
  expect 0 "$loss" "$kozero" eval run
  expect 0 '^given data   loss' on 2 eval run 'data.text=[text/7.txt]'
  expect 0 'resume       after step 12' on 3 train "$@" data.mask_documents=true checkpoint.resume=auto run.steps=14
  lines 0 '^note .*mask_documents'
  expect 0 'output in' "$kozero" train "$@" data.mask_documents=true run.steps=14 run.dir=continuous
  expect 0 '^1$' sh -c "tail -qn 1 run/metrics.jsonl continuous/metrics.jsonl | grep -o '$last' | sort -u | wc -l"
  expect 0 '^note         data.mask_documents is false and was true at step 14$' on 2 train "$@" checkpoint.resume=auto \
    run.steps=15
  expect 0 'training' "$kozero" prepare text out
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $small data.mask_documents=true model.vocab=256 'data.tokens=["out/train_000000.bin"]'
  expect 0 'output in' on 2 train "$@" data.tokenizer=out/tokenizer.json run.dir=tokens
  sed 's/^text = .*/tokens = ["out\/train_000000.bin"]\nmask_documents = true/; /^tokenizer/d' "$inputs/quickstart.toml" >tokens.toml
  set -- tokens.toml model.vocab=256 run.dir=none
  expect 2 '^\[rank 0\] error: tokens.toml:[0-9]+: data.mask_documents = true: data.tokens does not say which token begins a document; give its tokenizer as data.tokenizer$' \
    on 2 train "$@"
  expect 2 '^\[rank 0\] error: command line: data.mask_documents = true: nothing reads it if data.synthetic = true; accepted only with data.synthetic = false$' \
    on 2 train "$@" data.synthetic=true data.mask_documents=true
}

# Conversations: their tokens are shown, and their answers alone are learned, with the same bits on any ranks.
chat() {
  for i in $(seq 1 80); do echo "{\"prompt\": \"Say $i.\", \"completion\": \"$i is said!\"}"; done >chat.jsonl
  expect 0 '^80 conversations \(plain\): 951 tokens of answers are trained, 30[.]7 %$' "$kozero" prepare chat.jsonl out \
    --chat-template plain --show 1 --val-fraction 0
  also '^[|]\[\[1[|] [|]i[|]s[|] [|]s[|]a[|]i[|]d[|]![|].x00[|]\]\]$'
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $small checkpoint.every=4 'data.text=[chat.jsonl]' data.chat_template=plain \
    data.val_fraction=0.1 data.mask_documents=true
  expect 0 '^data .*; [0-9.]+ % of the targets are answers, which alone count; attention' on 2 train "$@" zero.stage=3
  expect 0 'output in' on 3 train "$@" run.dir=three zero.stage=1
  expect 0 '^same$' sh -c "grep -ho '\"loss\":[^,]*' run/metrics.jsonl >a; grep -ho '\"loss\":[^,]*' three/metrics.jsonl >b; cmp a b && echo same"
  expect 0 '% of the targets are answers' on 2 train "$@" run.dir=packed data.pack=best_fit
  echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}' >none.jsonl
  expect 3 'error: data.text: training tokens: 0 of [0-9]+ tokens are trained on, 0 %: no answer has a weight other than 0' \
    on 2 train "$@" 'data.text=[none.jsonl]' data.val_fraction=0
  expect 2 'data.chat_template = "auto": no template beside the tokenizer "bytes"; give one of chatml' \
    on 2 train "$@" data.chat_template=auto
}

# Documents packed by best fit: equal bits on 2 and 3 ranks and after a resume on others, with masks and without; an
# evaluation counts each token once.
packed() {
  mkdir text
  for i in $(seq 1 300); do yes "line $i: short." | head -n $((1 + i * i % 17)) >text/"$i".txt; done
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4 optim.schedule=constant data.pack=best_fit \
    data.mask_documents=true data.val_fraction=0 train.eval_every=0
  local last='"loss":[^,]*'
  expect 0 '^data .*; packed by best fit into [0-9]+ sequences, [0-9.]+ % of their places empty; attention and' \
    on 2 train "$@" zero.stage=3
  expect 0 'resume       after step 12' on 3 train "$@" checkpoint.resume=auto run.steps=14 zero.stage=1
  expect 0 'output in' "$kozero" train "$@" run.steps=14 run.dir=continuous
  expect 0 '^1$' sh -c "tail -qn 1 run/metrics.jsonl continuous/metrics.jsonl | grep -o '$last' | sort -u | wc -l"
  local tokens
  tokens=$(grep -o '"tokens": [0-9]*' .tokens/*/tokens.json | head -n 1 | grep -o '[0-9]*')
  expect 0 "^given data   loss .*, $tokens tokens\$" on 2 eval run 'data.text=[text]'
  expect 0 '^note         data.pack is "stream" and was "best_fit" at step 14$' on 2 train "$@" data.pack=stream \
    checkpoint.resume=auto run.steps=15
  sed 's/^text = .*/tokens = ["out\/train_000000.bin"]\npack = "best_fit"/; /^tokenizer/d' "$inputs/quickstart.toml" >tokens.toml
  expect 0 'training' "$kozero" prepare text out --val-fraction 0
  # shellcheck disable=SC2086
  set -- tokens.toml $small model.vocab=256
  expect 0 'packed by best fit into [0-9]+ seq' on 2 train "$@" data.tokenizer=out/tokenizer.json run.dir=tokens
  lines 1 '^validation '
  set -- tokens.toml model.vocab=256 run.dir=none
  expect 2 '^\[rank 0\] error: tokens.toml:[0-9]+: data.pack = "best_fit": data.tokens does not say which token begins a document; give its tokenizer as data.tokenizer$' \
    on 2 train "$@"
  expect 2 'data.pack = "best_fit": nothing reads it if data.synthetic = true' \
    on 2 train "$@" data.synthetic=true data.pack=best_fit
}

# A curriculum of three lessons with their own lengths, batches, rates and frozen tensors: the losses of a run that goes on
# from the middle of a lesson, or from the border of two, on other ranks and stages of ZeRO, are those of a run that never
# stopped.
curriculum() {
  make_text
  sed '/^steps/d' "$inputs/quickstart.toml" >deck.toml
  cat >>deck.toml <<'END'
[[curriculum]]
steps = 5
seq = 8
global_batch = 4
[[curriculum]]
tokens = 600           # 7 steps of 6 x 16 tokens
lr = 5e-4
schedule = "linear"
freeze = ["wte.weight", "h.0.ln_1.*"]
[[curriculum]]
steps = 3
micro_batch = 1
END
  # shellcheck disable=SC2086
  set -- deck.toml ${tiny/run.steps=12/} checkpoint.every=2 checkpoint.keep=9 model.dropout=0.1
  expect 0 'output in whole' on 2 train "$@" run.dir=whole zero.stage=3
  expect 0 '^lesson 2 of 3 is complete: its checkpoint is whole/step_0*12$' cat whole/log.txt
  lines 1 '^note  .*frozen until now'
  lines 0 '^note .*(bits are not|number of samples|_batch is)'
  expect 0 '^15$' sh -c 'wc -l <whole/metrics.jsonl'
  local step ranks losses
  losses='s/.*"loss":\([^,]*\),.*"lr":\([^,]*\),.*/\1 \2/'
  sed "$losses" whole/metrics.jsonl >whole.txt
  for step in 4 5 8 12; do
    ranks=$((step % 3 + 1))
    rm -rf part && cp -r whole part && rm -f part/weights.h5
    for folder in part/step_*; do
      [ $((10#${folder##*_})) -le $step ] || rm -r "$folder"
    done
    expect 0 "resume       after step $step," on $ranks train "$@" run.dir=part checkpoint.resume=auto zero.stage=$ranks
    sed "$losses" part/metrics.jsonl >part.txt
    expect 0 same sh -c 'cmp whole.txt part.txt && echo same'
  done
  expect 0 'nothing to train: step 15 of 15' on 2 train "$@" run.dir=whole checkpoint.resume=auto
  expect 0 '^lesson 2 of 3: steps 6 to 12' "$kozero" plan "$@"
  expect 2 'curriculum\[0\]: it has no length; give its steps or tokens' on 2 train "$@" 'curriculum=[{lr=1e-3}]'
  expect 2 'curriculum\[0\]: it gives steps and tokens' on 2 train "$@" 'curriculum=[{steps=1,tokens=5}]'
  expect 2 'run.curriculum\[0\].tokens = 0: accepted: integer 1 to' on 2 train "$@" 'curriculum=[{tokens=0}]'
  expect 2 '^\[rank 0\] error: curriculum\[1\]: train.seq = 17: accepted are at most model.seq = 16, the model.s positions$' \
    on 2 train "$@" 'curriculum=[{steps=2}, {steps=2, seq=17}]'
  expect 2 'checkpoint.every = 0: a lesson begins with the checkpoint of the lesson before' \
    on 2 train "$@" checkpoint.every=0
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
    optim.lr=1e38 train.grad_clip=0 train.on_nonfinite=skip train.eval_every=0
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

run_case
