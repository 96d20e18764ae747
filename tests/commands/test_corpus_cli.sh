#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_corpus_cli.sh KOZERO MPIEXEC INPUTS CASE: sources, mixtures, documents, packing, curricula, a corpus that grows,
# conversations: the same bits on any ranks and after a resume. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# records FIRST LAST: records of a corpus, as JSON lines.
records() {
  local i
  for ((i = $1; i <= $2; ++i)); do printf '{"text": "record %s tells %s and %s"}\n' $i $((i * i)) $((i * 7 % 31)); done
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

# The end of an epoch, and data smaller than the batch: the banner has the steps that run, which are the same on any
# ranks, more than a small step has granules included, and after a resume.
tails() {
  for i in $(seq 0 39); do printf 'the quick brown fox %s jumps over the lazy dog. ' "$i"; done >text.txt
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" ${tiny%data.text=*} data.text=text.txt data.val_fraction=0 train.eval_every=0 model.seq=32 \
    train.global_batch=25 run.steps=6 optim.schedule=constant optim.warmup_steps=0 checkpoint.every=4
  expect 0 '^batch +25 sequences of 32 tokens per step = 2 per rank at once x 1 rank x 13 micro-steps, ' on 1 train "$@" run.dir=one
  also '^note +of the 3 steps of an epoch of 59 sequences the last one has 9 in place of 25, at the same rate; '
  expect 0 '^800 800 288 800 800 288 $' python3 -c 'import json
before = 0
for line in open("one/metrics.jsonl"):
    tokens = json.loads(line)["tokens"]
    print(tokens - before, end=" ")
    before = tokens'
  trace one >one.txt
  for ranks in 2 3 4; do
    expect 0 '^note +of the 3 steps of an epoch' on $ranks train "$@" run.dir=on$ranks train.micro_batch=2
    trace on$ranks >other.txt
    expect 0 '^same$' sh -c 'cmp one.txt other.txt && echo same'
  done
  expect 0 'the last one has 9 in place of 25, at the same rate, on 2 of 3 ranks; ' on 3 train "$@" run.dir=wide train.micro_batch=5
  trace wide >wide.txt
  expect 0 'output in' on 1 train "$@" run.dir=narrow train.micro_batch=5
  trace narrow >other.txt
  expect 0 '^same$' sh -c 'cmp wide.txt other.txt && echo same'
  expect 0 'output in' on 2 train "$@" run.dir=stopped run.steps=2
  lines 0 '^note +of the 3 steps'  # it has no such step
  also '^note +checkpoint.every = 4: more than the run.s 2 steps, so it happens only at the end$'
  expect 0 'resume       after step 2' on 3 train "$@" run.dir=stopped checkpoint.resume=auto
  trace stopped >other.txt
  expect 0 '^same$' sh -c 'cmp one.txt other.txt && echo same'
  expect 0 '^batch +59 sequences of 32 tokens per step = 2 per rank at once x 2 ranks x 15 micro-steps, ' \
    on 2 train "$@" run.dir=few train.global_batch=500 run.steps=2
  also '^note +train.global_batch = 500: the data have 59 sequences of 32 tokens, so each step has these 59 and is an epoch; '
  lines 0 'ranks ha(s|ve) no work'
  expect 0 '^optimizer .*, 4 steps$' on 1 train "${@/run.steps=*/run.epochs=4}" run.dir=epochs train.global_batch=500
  expect 0 '^batch +500 sequences' on 2 train "${@/data.text=text.txt/run.seed=1}" run.dir=mixture 'data.source=[{text="text.txt", weight=1}]' train.global_batch=500 run.steps=1
  lines 0 'note +(train.global_batch|of the)'
  expect 0 '^note +curriculum: lesson 1 was given 2400 tokens and has 1888 in its 3 steps' \
    on 1 train "${@/run.steps=*/run.seed=1}" run.dir=lessons 'curriculum=[{tokens=2400}, {steps=1}]'
}

# The steps of a run with their losses, gradient norms and validation losses of each source, with all digits.
losses_by_source() {
  sed 's/^{"step":\([0-9]*\),.*"loss":\([^,]*\),"val_loss":\([^,]*\),"grad_norm":\([^,]*\),.*"calls":{[^}]*}/\1 \2 \3 \4 /' "$1/metrics.jsonl"
}

# Two sources by weight: the same bits on any ranks, stages and batches of ranks, after a kill, and in eval.
mixtures() {
  make_text
  seq 1 900 >extra.txt
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" ${tiny%data.text=*} checkpoint.every=4 optim.schedule=constant data.val_fraction=0.1
  local list='data.source=[{text="text", name="fox", weight=7}, {text="extra.txt", name="numbers", weight=3}]'
  expect 0 '^data .*; of each 1000 samples 700 are of fox \([0-9]+ tokens, 0.0[34] passes in 12 steps\), 300 of numbers \([0-9]+ tokens, 0.[0-9]{2} passes in 12 steps\)' \
    "$kozero" train "$@" "$list"
  also '^step 5: fox          loss [0-9.]+, perplexity [0-9.]+, [0-9.]+ bits per byte, [0-9,]+ tokens$'
  also '^step 5: numbers      loss '
  also '^  numbers      loss '
  losses_by_source run >one.txt
  expect 0 '^5 [0-9.]+ [0-9.]+ [0-9.]+ ,"val_sources":\{"fox":\{"loss":[0-9.]+,"bits_per_byte":[0-9.]+\},"numbers":' cat one.txt
  lines 12 '^[0-9]+ [0-9.]+ '
  # few validation samples of the numbers, so a mean over tokens would differ
  expect 0 '^mean by weight$' awk -F '[ :,{}]+' '$1 == 5 { gsub(/"/, ""); d = $3 - (0.7 * $8 + 0.3 * $13)
                                              if (d * d < 1e-20 && $8 != $13) print "mean by weight"; else print }' one.txt
  for layout in '2 0' '2 3' '3 0' '3 3'; do
    expect 0 'output in' on "${layout% *}" train "$@" "$list" zero.stage="${layout#* }" run.dir="other$layout"
    losses_by_source "other$layout" >other.txt
    expect 0 '^same$' sh -c 'cmp one.txt other.txt && echo same'
  done
  expect 0 '^1$' sh -c "for r in 1 2 3; do $mpiexec -n \$r $kozero eval run 2>/dev/null; done | grep -E '^(validation|  fox|  numbers) ' | sort -u | grep -c '^validation'"
  expect 0 '^  numbers +loss [0-9.]+, perplexity' on 3 eval run
  also '^  fox +loss'
  expect 0 '^given data +loss' on 2 eval run "$list"
  also '^  fox +loss'
  expect 0 'bytes|GiB|MiB' "$kozero" plan "$@" "$list"
  expect 0 'equal' "$kozero" verify run --replay 11
}

# A mixture that is killed goes on elsewhere with the bits of a run that never stopped; other weights are other data.
killed_mixture() {
  make_text
  seq 1 900 >extra.txt
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" ${tiny%data.text=*} checkpoint.every=30 optim.schedule=constant train.eval_every=0
  local list='data.source=[{text="text", tokens=700}, {text="extra.txt", tokens=300}]'
  "$kozero" train "$@" "$list" run.steps=10000000 >train.txt 2>&1 </dev/null &
  until [ -d run/step_000000060 ] || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
  kill -9 $!
  wait $! 2>/dev/null
  local at last
  at=$(find run -name 'step_?????????' | sed 's/.*step_0*//' | sort -n | tail -n 1)
  last=$((at + 7))
  expect 0 "resume       after step $at" on 3 train "$@" "$list" checkpoint.resume=auto run.steps=$last zero.stage=3
  lines 0 '^note .*data'
  expect 0 'output in' "$kozero" train "$@" "$list" run.steps=$last run.dir=continuous checkpoint.every=0
  for run in run continuous; do losses_by_source $run >$run.txt; done
  expect 0 '^same$' sh -c 'cmp run.txt continuous.txt && echo same'
  local changed="the training data differ from those of run/step_0*$last: their mixture is 600/1000 from [0-9]+ samples, 400/1000 from [0-9]+ samples and was 700/1000 from "
  expect 2 "$changed.*; refused by data.strict = true" on 2 train "$@" "${list/700/450}" checkpoint.resume=auto \
    run.steps=$((last + 1)) data.strict=true
  expect 0 "^note         $changed" on 2 train "$@" "${list/700/450}" checkpoint.resume=auto run.steps=$((last + 1))
  expect 2 'error: command line: data.source\[1\].epochs = 2: source 1 ends at step [0-9]+ of 4000, and the run would make [0-9.]+ passes over it; accepted: at most [0-9]+ steps, more epochs, or a smaller weight$' \
    on 2 train "$@" "${list%\}\]}, epochs=2}]" run.steps=4000 run.dir=limited
  expect 2 'limited' ls -d limited
  expect 2 'data.source\[1\] \(name 1\) holds [0-9]+ training tokens, not one sample of model.seq \+ 1; give it more text' \
    sh -c "echo abc >short.txt; $kozero train $* '${list/extra/short}'"
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
# from the middle of a lesson, or from the boundary of two, on other ranks and stages of ZeRO, are those of a run that never
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
  # Each lesson with sources of its own, resumed in the second one.
  records 1 90 >a.jsonl
  records 300 390 >b.jsonl
  sed '/^text = /d' deck.toml >mixed.toml
  # shellcheck disable=SC2086
  set -- mixed.toml ${small/run.steps=12/} checkpoint.every=3 checkpoint.keep=9 train.eval_every=0 \
    'data.source=[{name="a", text="a.jsonl", weight=1}, {name="b", text="b.jsonl", weight=1}]' \
    'curriculum=[{steps=4, sources=["a"]}, {steps=7, sources=["a:0.25", "b:0.75"], lr=1e-4}]'
  expect 0 '^data .*of each 1000 samples 1000 are of a ' on 2 train "$@" run.dir=mixed
  lines 0 '^note .*which is over'
  also '^data .*of each 1000 samples 250 are of a .*, 750 of b '
  rm -rf part && cp -r mixed part && rm -r part/weights.h5 part/step_*11 part/step_*9
  expect 0 'resume       after step 6,' on 3 train "$@" run.dir=part checkpoint.resume=auto zero.stage=3
  expect 0 same sh -c "for run in mixed part; do sed '$losses' \$run/metrics.jsonl >\$run.txt; done; cmp mixed.txt part.txt && echo same"
  expect 0 'all weights and moments are those of mixed/step_0*6$' "$kozero" verify mixed --replay 6
  local apart=('curriculum=[{steps=4, sources=["a"]}, {steps=5, sources=["b"]}]' run.dir=apart)
  expect 0 'output in' on 1 train "$@" "${apart[@]}"
  rm -r apart/weights.h5 apart/step_*9 && cp -p a.jsonl kept.jsonl && records 91 92 >>a.jsonl
  expect 0 '^note +the text of lesson 1, which is over, has changed, or its tokens are gone: ' on 1 train "$@" "${apart[@]}" checkpoint.resume=auto
  mv kept.jsonl a.jsonl
  rm -r mixed/step_*3 mixed/step_*4
  expect 3 'mixed: step 6 is of a lesson that begins behind step 4, and no complete checkpoint is there from then on' \
    "$kozero" verify mixed --replay 6
  expect 0 'agree bit for bit' on 2 verify mixed.toml "${@:2}" --ranks 1,2 --steps 2
  expect 2 'part/step_0*11: there lesson 2 begins behind step 4, here behind step 5; give the lessons before it the lengths' \
    on 2 train "$@" run.dir=part checkpoint.resume=auto 'curriculum=[{steps=5, sources=["a"]}, {steps=7, sources=["a:0.25", "b:0.75"], lr=1e-4}]'
  expect 2 '^\[rank 0\] error: command line: curriculum\[0\].sources = \[c\]: no source is called c; accepted: a, b' \
    on 2 train "$@" 'curriculum=[{steps=4, sources=["c"]}]'
  expect 2 'curriculum\[0\].sources = \[a:x\]: "x" is no weight; accepted: number > 0' \
    on 2 train "$@" 'curriculum=[{steps=4, sources=["a:x"]}]'
  # shellcheck disable=SC2086
  set -- deck.toml ${tiny/run.steps=12/} checkpoint.every=2 checkpoint.keep=9 model.dropout=0.1
  expect 0 'nothing to train: step 15 of 15' on 2 train "$@" run.dir=whole checkpoint.resume=auto
  expect 0 '^lesson 2 of 3: steps 6 to 12' "$kozero" plan "$@"
  expect 2 'curriculum\[0\]: it has no length; give its steps or tokens' on 2 train "$@" 'curriculum=[{lr=1e-3}]'
  expect 2 'curriculum\[0\]: it gives steps and tokens' on 2 train "$@" 'curriculum=[{steps=1,tokens=5}]'
  expect 2 'run.curriculum\[0\].tokens = 0: accepted: integer 1 to' on 2 train "$@" 'curriculum=[{tokens=0}]'
  expect 2 '^\[rank 0\] error: curriculum\[1\]: train.seq = 17: accepted: at most model.seq = 16, the model.s positions$' \
    on 2 train "$@" 'curriculum=[{steps=2}, {steps=2, seq=17}]'
  expect 2 'checkpoint.every = 0: a lesson begins with the checkpoint of the lesson before' \
    on 2 train "$@" checkpoint.every=0
}

# A corpus that grows: an epoch has the files that were there when it began, whenever the run stops and goes on, on any
# ranks; without new files the bits are those of a corpus that does not grow.
grows() {
  mkdir text
  records 1 20 >text/m.jsonl
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny data.grow=true data.val_fraction=0 train.eval_every=0 checkpoint.every=2 \
    checkpoint.resume=auto optim.schedule=constant
  local losses='s/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/'
  expect 0 '^data .*; epoch 0: 1 files, 0 of them new' on 2 train "$@" run.dir=still run.steps=20
  expect 0 '^epoch 0 is complete: its checkpoint is still/step_0*[0-9]+$' cat still/log.txt
  local steps
  steps=$(grep -o 'epoch 0 is complete.*step_0*[0-9]*' still/log.txt | grep -o '[1-9][0-9]*$')
  expect 0 'output in' on 3 train "$@" run.dir=fixed run.steps=20 data.grow=false
  expect 0 same sh -c "for run in still fixed; do sed '$losses' \$run/metrics.jsonl >\$run.txt; done; cmp still.txt fixed.txt && echo same"
  # The file comes at the end of epoch 0, or in it.
  expect 0 'output in' on 2 train "$@" run.dir=late run.steps=$steps
  expect 0 'output in' on 1 train "$@" run.dir=early run.steps=3
  records 21 29 >text/a.jsonl
  expect 0 '^data .*; epoch 1: 2 files, 1 of them new' on 2 train "$@" run.dir=late run.steps=20
  expect 0 '^data .*; epoch 0: 1 files, 0 of them new' on 3 train "$@" run.dir=early run.steps=20
  also '^data .*; epoch 1: 2 files, 1 of them new'
  expect 0 same sh -c "for run in late early; do sed '$losses' \$run/metrics.jsonl >\$run.txt; done; cmp late.txt early.txt && echo same"
  expect 1 differ sh -c 'cmp late.txt still.txt'
  printf ' ' >>text/m.jsonl
  expect 3 '^\[rank 0\] error: data.text: /.*/text/m.jsonl has [0-9]+ bytes, not [0-9]+, since an epoch of this run had it; bring it back, or go on with the files as they are, and other bits, by data.grow=false$' \
    on 2 train "$@" run.dir=late run.steps=22
  rm text/m.jsonl
  expect 3 'text/m.jsonl is gone since an epoch of this run had it' on 2 train "$@" run.dir=late run.steps=22
  expect 0 '^note .*data.grow is false and was true at step 20' on 2 train "$@" run.dir=late run.steps=22 data.grow=false
  expect 2 'data.grow = true: accepted is false if run.epochs = 2' on 2 train "$inputs/quickstart.toml" data.grow=true run.epochs=2
  expect 2 'data.grow = true: accepted is false if data.tokenizer = "bpe:300": a learned tokenizer would change' \
    on 2 train "$@" run.dir=none data.tokenizer=bpe:300 model.vocab=300
}

# Conversations: the answers alone are learned, with equal bits on 1, 2 and 3 ranks, packed and in windows, from text and
# from shards.
chat() {
  local i pack
  for i in $(seq 1 200); do
    printf '{"messages": [{"role": "user", "content": "What is %s?"}, {"role": "assistant", "content": "Always the same."}]}\n' \
      "$(yes $i | head -n $((i % 9 + 1)) | tr '\n' ' ')"
  done >chat.jsonl
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $small 'data.text=["chat.jsonl"]' data.chat_template=plain checkpoint.every=4 \
    optim.schedule=constant optim.lr=0.01
  local last='"loss":[^,]*'
  for pack in stream best_fit; do
    set -- "$@" data.pack=$pack
    expect 0 '^data .*; [0-9.]+ % of the targets are answers, which alone count' on 2 train "$@" run.dir=$pack zero.stage=3
    lines 0 'bits per byte'
    expect 0 'resume       after step 12' on 3 train "$@" run.dir=$pack checkpoint.resume=auto run.steps=40 zero.stage=1
    expect 0 'output in' "$kozero" train "$@" run.dir=$pack-alone run.steps=40
    expect 0 '^1$' sh -c "tail -qn 1 $pack/metrics.jsonl $pack-alone/metrics.jsonl | grep -o '$last' | sort -u | wc -l"
    expect 0 '^validation   loss' on 2 eval $pack
  done
  expect 0 '^200 conversations \(plain\): [0-9]+ tokens of answers are trained, [0-9.]+ %$' \
    "$kozero" prepare chat.jsonl out --chat-template plain --val-fraction 0 --show 1
  also '^[|]\[\[A[|]l[|]w[|]a[|]y[|]s.*[.][|].x00[|]\]\]$'
  expect 0 'which alone count' on 2 train "$inputs/quickstart.toml" $small 'data.tokens=["out/train_000000.bin"]' model.vocab=256 \
    run.dir=tokens
  # The same tokens, of which others are trained.
  sed '7s/"content": "Always the same."/&, "weight": 0/' chat.jsonl >edited.jsonl
  expect 0 '^note         the training data differ from those of stream/.*: their answers are [0-9]+ tokens, [0-9a-f]+ and were' \
    on 2 train "$@" data.pack=stream run.dir=stream 'data.text=["edited.jsonl"]' checkpoint.resume=auto run.steps=42
  # A set without a question, or whose answers are not trained.
  sed 's/"content": "Always the same."/&, "weight": 0/' chat.jsonl >none.jsonl
  expect 3 'training tokens: 0 of [0-9]+ tokens are trained on, 0 %' on 2 train "$@" 'data.text=["none.jsonl"]' run.dir=none
}

# Ranks prepare together: the files have the bytes of one rank's, also after a kill and on another number of ranks.
prepared_together() {
  local ranks
  mkdir text
  records 1 4000 >text/m.jsonl
  records 3990 4100 >text/n.jsonl
  set -- text together --tokenizer bpe:400 --shard-tokens 30000 --deduplicate --val-fraction 0.1
  expect 0 'training' "$kozero" prepare "$@" --threads 1
  mv together one
  for ranks in 2 3; do
    expect 0 '^note: left out records: 11 duplicate' on $ranks prepare "$@" --threads 2
    expect 0 same sh -c 'diff -r one together && echo same'
    rm -r together
  done
  on 3 prepare "$@" >part.txt 2>&1 </dev/null &
  until ls together.partial/train_000001.bin >/dev/null 2>&1 || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
  pkill -9 -f "$kozero prepare text together" 2>/dev/null
  wait $!
  expect 0 'training' on 2 prepare "$@"
  expect 0 same sh -c 'diff -r one together && echo same'
  printf '{"text": 7}\n' >>text/n.jsonl
  expect 3 '^\[rank 0\] error: data.text: text/n.jsonl: row 112: ' on 3 prepare "$@"
  lines 1 'error'
  # The last row is refused while threads still encode the batch before it.
  { records 1 90000; printf '{"text": 7}\n'; } >bad.jsonl
  expect 3 '^\[rank 0\] error: data.text: bad.jsonl: row 90001: ' "$kozero" prepare bad.jsonl bad --threads 16
}

# Characters as tokens and a GPT-2 without biases, as nanoGPT trains: the model's vocabulary is counted, the tokenizer is
# saved with the run, exported and imported, and other characters are refused in one line.
characters() {
  make_text
  local ids e_acute e_grave o_stroke
  ids=$(($(od -An -v -tx1 -w1 text/a.txt | sort -u | wc -l) + 1))
  e_acute=$(printf '\303\251') e_grave=$(printf '\303\250') o_stroke=$(printf '\303\230')
  echo "line 401: ${e_acute}t${e_acute}" >>text/a.txt
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny data.tokenizer=chars model.bias=false
  expect 0 ": $((16 * ids + 3376)) parameters" "$kozero" plan "$@"  # no bias among them
  expect 0 "vocabulary $ids" on 2 train "$@" run.steps=2 checkpoint.every=2
  also "\\(chars:$ids\\)"
  expect 0 '^resume +after step 2' on 1 train "$@" checkpoint.resume=auto zero.stage=3
  expect 0 '^line 1: t' "$kozero" generate run --prompt 'line 1: t' --tokens 5
  expect 0 . "$kozero" generate run --tokens 5
  expect 3 "error: run/tokenizer.json: no id for the character \"$e_grave\" \\(U\\+00E8\\) of the text; accepted: the $ids characters" \
    "$kozero" generate run --prompt "lin$e_grave"
  lines 1 'error'
  expect 0 '"loss"' "$kozero" eval run 'data.text=["text"]' --json
  local loss
  loss=$(grep -o '"loss":[0-9.]*' out.txt)
  mkdir other && echo "the quick ${o_stroke}rsted" >other/b.txt
  expect 3 "no id for the character \"$o_stroke\" \\(U\\+00D8\\)" "$kozero" eval run 'data.text=["other"]'
  expect 2 "model.vocab = 20: the data's tokenizer has $ids tokens; leave the key out, or give at least that" \
    "$kozero" train "$@" model.vocab=20 run.dir=small
  expect 2 'model.bias = false: nothing reads it if model.arch = "llama"; accepted only with model.arch = "gpt2"' \
    "$kozero" train "$@" model.arch=llama
  expect 0 'note: model.bias = false: transformers. GPT-2 has biases, which are written as zeros' "$kozero" export run hf
  expect 0 same sh -c 'cmp run/tokenizer.json hf/tokenizer.json && echo same'
  expect 0 'gpt2, 16 tensors' "$kozero" import hf in
  expect 0 "$loss" "$kozero" eval in 'data.text=["text"]' --json
  expect 0 "chars:$ids" "$kozero" prepare text tokens --tokenizer chars
  # shellcheck disable=SC2086
  expect 0 "vocabulary $ids" "$kozero" train "$inputs/quickstart.toml" $small model.bias=false run.dir=by_tokens \
    data.tokens=tokens/train_000000.bin data.tokenizer=tokens/tokenizer.json
  expect 2 'data.tokenizer = "chars": .*a learned tokenizer would change with the text; give its file' \
    "$kozero" train "$@" data.grow=true
}

run_case
