#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_cli.sh KOZERO MPIEXEC INPUTS CASE: one case of the command line as a user meets it, in a folder of its own.
# A case is a function below. `expect` fails it, and prints the expected and the actual output.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

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
  expect 0 "$(head -n 1 first.txt | cut -d, -f1)" on 3 eval run/weights.h5 zero.stage=3
  expect 0 '"perplexity":.*"tokens":28692}' "$kozero" eval run 'data.text=["text"]' --json
  expect 0 '^line' text_of "$kozero" generate run --prompt line --tokens 20 --temperature 0
  cp out.txt first.txt
  expect 0 "$(head -n 1 first.txt)" text_of on 2 generate run --prompt line --tokens 20 --temperature 0
  # shellcheck disable=SC2086
  expect 0 'output in run-2' "$kozero" train "$inputs/quickstart.toml" $tiny zero.stage=3
  expect 0 'dir = "run-2"' cat run-2/deck.toml
  # shellcheck disable=SC2086
  expect 0 'output in slash:' "$kozero" train "$inputs/quickstart.toml" $tiny run.dir=slash/
  sed "s|^dir *=.*||" "$inputs/quickstart.toml" >my.toml
  for folder in runs/my runs/my-2; do
    # shellcheck disable=SC2086
    expect 0 "output in $folder:" "$kozero" train my.toml $tiny run.dir=runs/my
  done
  rm runs/my/weights.h5
  expect 0 'validation   loss' "$kozero" eval my.toml
}

same_losses_on_any_ranks() {
  make_text
  for ranks in 1 2 3; do
    # shellcheck disable=SC2086
    expect 0 'output in' on $ranks train "$inputs/quickstart.toml" $tiny run.dir=r$ranks
    sed 's/.*"loss":\([0-9]\.[0-9]\{4\}\).*/\1/' r$ranks/metrics.jsonl >losses$ranks
  done
  expect 0 same sh -c 'cmp losses1 losses2 && echo same'
  expect 0 same sh -c 'cmp losses1 losses3 && echo same'
}

verify_agrees() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'all stages agree bit for bit on 1, 2, 3 ranks' on 3 verify "$inputs/quickstart.toml" $tiny \
    train.micro_batch=1 --ranks 3,1,2
  cp out.txt table.txt
  expect 0 '^ +3 +3 .* equal$' cat table.txt
  expect 2 '--ranks: 4 ranks are needed and 2 started: mpiexec -n 4 .*verify' on 2 verify "$inputs/quickstart.toml" \
    $tiny --ranks 4
  expect 2 'each number of ranks trains on another batch' on 2 verify "$inputs/demos/synthetic.toml" --ranks 1,2
}

bpe() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'vocabulary 300' "$kozero" train "$inputs/quickstart.toml" $tiny data.tokenizer=bpe:300
  echo 'another text, whose pairs are others: zzz zzz zzz zzz' >text/a.txt
  for i in $(seq 1 400); do echo "zzz $i xyxyxy"; done >>text/a.txt
  expect 0 'validation   loss' "$kozero" eval run
  expect 0 same sh -c 'cmp run/tokenizer.json cache/kozero/tokens/*/tokenizer.json && echo same'
  make_text
  expect 0 'already made' sh -c "'$kozero' prepare text out --tokenizer bpe:300 && '$kozero' prepare text out --tokenizer bpe:300"
  # shellcheck disable=SC2086
  expect 0 'tokens in 1 shards' "$kozero" train "$inputs/quickstart.toml" $small 'data.tokens=["out/train_000000.bin"]' \
    data.tokenizer=out/tokenizer.json
}

linear_demo() {
  expect 0 'largest' on 2 train "$inputs/demos/linear_demo.toml" run.dir=run
  expect 0 'stage 2 on 2 ranks' cat run/log.txt
  also '^batch +[0-9]+ samples per step = '
  lines 0 'attention|sequences|a sample'
  lines 0 ' 0[.]0(,|$)'
  lines 0 'loss 0[.]0000'
  expect 0 '^ +[0-9]+ +[0-9][.][0-9]{3}e-[0-9]+ ' "$kozero" metrics run --last 1
  expect 0 '^KiB on the fullest rank' "$kozero" plan "$inputs/demos/linear_demo.toml" --ranks 1
  lines 0 'recompute'
  # Each of 4 ranks has a quarter of the optimizer state, without padding.
  expect 0 'largest' on 4 train "$inputs/demos/linear_demo.toml" run.dir=whole run.steps=2 zero.stage=0
  expect 0 'largest' on 4 train "$inputs/demos/linear_demo.toml" run.dir=quarters run.steps=2
  expect 0 '"optimizer":4096[,}]' tail -n 1 whole/metrics.jsonl
  expect 0 '"optimizer":1024[,}]' tail -n 1 quarters/metrics.jsonl
}

import_export() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny data.tokenizer=bpe:300
  expect 0 'hf: 16 tensors, .* in 1 file, gpt2 for transformers' "$kozero" export run hf
  expect 0 'again: gpt2, 16 tensors' "$kozero" import hf again
  expect 0 'given data   loss' "$kozero" eval run 'data.text=["text"]'
  cp out.txt first.txt
  expect 0 "$(head -n 1 first.txt)" "$kozero" eval again 'data.text=["text"]'
  expect 0 '^line' text_of "$kozero" generate run --prompt line --tokens 20 --temperature 0
  cp out.txt first.txt
  expect 0 "$(head -n 1 first.txt)" text_of "$kozero" generate again --prompt line --tokens 20 --temperature 0
  expect 0 same sh -c 'h5diff run/weights.h5 again/weights.h5 /parameters && echo same'
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny data.tokenizer=bpe:300 run.dir=qwen \
    model.arch=qwen3 model.head_dim=6 'model.rope_scaling={type="llama3", factor=4, original_seq=20}'
  expect 0 'hf_qwen: 14 tensors, .* qwen3 for transformers' "$kozero" export qwen hf_qwen
  expect 0 'again_qwen: qwen3, 14 tensors' "$kozero" import hf_qwen again_qwen
  expect 0 'given data   loss' "$kozero" eval qwen 'data.text=["text"]'
  cp out.txt first.txt
  expect 0 "$(head -n 1 first.txt)" "$kozero" eval again_qwen 'data.text=["text"]'
  expect 0 'in [2-9] files' "$kozero" export run shards --max-shard-size 10KiB
  expect 0 'again2: gpt2, 16 tensors' "$kozero" import shards again2
  expect 0 same sh -c 'h5diff run/weights.h5 again2/weights.h5 /parameters && echo same'
  expect 3 'data.text: give-data.text: no such file' "$kozero" eval again
  expect 2 'hf: there is an exported model already; name another folder, or replace it' "$kozero" export run hf
  expect 2 'export runs on one rank' on 2 export run hf2
  expect 3 'hf/config.json: model_type = "mamba": accepted:' sh -c "sed -i s/gpt2/mamba/ hf/config.json; '$kozero' import hf x"
  head -c 3000 shards/model-00002-of-* >cut && cp cut shards/model-00002-of-*
  expect 3 '^\[rank 0\] error: shards/model-00002-of-.*: tensor .*: it is truncated$' "$kozero" import shards x
  rm again/tokenizer.json
  expect 2 'data.tokenizer' "$kozero" eval again 'data.text=["text"]'
}

refusals() {
  make_text
  expect 2 '^\[rank 0\] error: .*did you mean stage\?$' "$kozero" train "$inputs/quickstart.toml" zero.stge=3
  cp out.txt refusal.txt
  expect 0 '^1$' sh -c 'wc -l <refusal.txt'
  expect 2 'unknown command "trian": did you mean train' "$kozero" trian
  expect 2 'usage: kozero train DECK' "$kozero" train
  expect 2 'accepted: "bytes", "chars", "bpe:N"' on 2 train "$inputs/quickstart.toml" data.tokenizer=bpe:many
  expect 2 'nowhere.toml' on 2 train nowhere.toml
  expect 2 'ranks 0 and 1 disagree on run.seed: 1 and 2' $mpiexec -n 1 "$kozero" train "$inputs/quickstart.toml" : \
    -n 1 "$kozero" train "$inputs/quickstart.toml" run.seed=2
  expect 3 'missing' on 2 train "$inputs/quickstart.toml" 'data.text=["missing"]'
  expect 2 'for a plan the number of ids is enough: model.vocab=151936 of the preset$' \
    "$kozero" plan "$inputs/llama3_8b.toml" model.preset=qwen3-8b
  for i in 1 2; do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"q $i\"}]}"; done >talk.jsonl
  expect 3 'its keys: messages; they are conversations: set data.chat_template$' on 2 train "$inputs/quickstart.toml" \
    'data.text=["talk.jsonl"]'
  expect 2 '[GM]iB per rank .[0-9.]+ [GM]iB of [a-z]+. and [0-9.]+ [GM]iB are available; nothing fits: use more ranks' "$kozero" train "${gpt2[@]}" model.preset=llama-13b
  expect 2 'no trained weights' "$kozero" eval text
  expect 3 'weights.h5' sh -c "mkdir bad && cp '$inputs/quickstart.toml' bad/deck.toml && echo junk >bad/weights.h5 && '$kozero' eval bad"
  expect 4 'run' "$kozero" train "$inputs/demos/linear_demo.toml" run.dir=/proc/run
  # shellcheck disable=SC2086
  expect 2 'comm.backend = nccl: this program was built for CPUs' on 2 train "$inputs/quickstart.toml" $tiny comm.backend=nccl run.dir=refused
  expect 2 'refused' ls -d refused
  # shellcheck disable=SC2086
  expect 6 'not finite.*lower|not finite.*Lower' on 2 train "$inputs/quickstart.toml" $tiny optim.lr=1e38 train.grad_clip=0
  # shellcheck disable=SC2086
  expect 0 'step 3: the gradient of .* is not finite; the update was left out' "$kozero" train "$inputs/quickstart.toml" $tiny \
    optim.lr=1e36 train.grad_clip=0 train.on_nonfinite=skip train.max_skips=100
  # shellcheck disable=SC2086
  expect 75 'run.max_minutes' on 2 train "$inputs/quickstart.toml" $tiny run.steps=100000 run.max_minutes=0.02
}

# Weights and activations in 16 bits: all stages agree; a run in 16 bits resumes in f32 and the reverse; files have f32.
bf16() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny train.micro_batch=1 checkpoint.every=4
  expect 0 'all stages agree bit for bit' on 2 verify "$@" train.precision=bf16
  expect 75 'precision    bf16 weights and activations, products by [^;]*; f32 master weights' on 2 train "$@" train.precision=bf16 \
    run.max_minutes=1e-9
  expect 0 'resume       after step 1, ' on 3 train "$@" checkpoint.resume=auto run.steps=4
  expect 0 'precision    f32, products by ' cat run/log.txt
  expect 0 'resume       after step 4, ' on 2 train "$@" checkpoint.resume=auto train.precision=bf16 zero.stage=3
  expect 0 'h.0.attn.c_attn.weight Dataset \{16, 48\}' h5ls -r run/step_000000012/state.h5
  expect 0 'Type: *native float' h5ls -v run/step_000000012/state.h5/parameters/ln_f.weight
  expect 0 'validation   loss' "$kozero" eval run
  expect 0 'states by formula, bf16' "$kozero" plan "${gpt2[@]}" train.precision=bf16 --ranks 8
}

# fp16 with its loss scale: printed, in the metrics, saved and restored.
fp16() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny train.micro_batch=1 checkpoint.every=4 train.precision=fp16
  expect 0 'all stages agree bit for bit' on 2 verify "$@"
  expect 75 'precision    fp16 weights and activations, products by [^;]*; f32 master weights' on 2 train "$@" \
    train.loss_scale_window=2 run.max_minutes=1e-9
  also 'step 1/12  loss [0-9.]+  scale 65536 '
  expect 0 '"loss_scale":65536.0,"skipped":false,"skips_in_a_row":0,"time":' cat run/metrics.jsonl
  expect 0 'loss scale   65536, 1 good steps in a row' "$kozero" inspect run
  expect 0 'resume       after step 1, ' on 2 train "$@" train.loss_scale_window=2 checkpoint.resume=auto zero.stage=3
  expect 0 '"loss_scale":131072.0,"skipped":false,"skips_in_a_row":0,"time":' sed -n 3p run/metrics.jsonl
  expect 6 'at a loss scale of 16777216, first in the gradient of ' on 2 train "$@" train.loss_scale=16777216 run.dir=other
  expect 0 'per micro-step, fp16, ' "$kozero" bench kernels "$@" --runs 1
}

# MPICH can simulate several nodes: auto then prints a note once per command, and plans for the resulting back end.
on_several_nodes() {
  case $mpiexec in *mpich*) ;; *) return ;; esac
  # shellcheck disable=SC2086
  expect 0 'auto takes mpi: the 2 ranks do not share one node' env MPIR_CVAR_NOLOCAL=1 $mpiexec -n 2 "$kozero" verify \
    "$inputs/quickstart.toml" $tiny
  lines 1 'auto takes mpi'
  expect 0 '"backend":"mpi".*"communication":16781824,' env MPIR_CVAR_NOLOCAL=1 $mpiexec -n 2 "$kozero" plan \
    "${gpt2[@]}" --ranks 2 --json
}

plan_fits() {
  expect 0 'lowest stage within' "$kozero" plan "${gpt2[@]}" --ranks 8
  also '^assumed: comm.backend = auto takes shm, all ranks being on one node$'
  expect 0 'parameters on 8 ranks' "$kozero" plan "${gpt2[@]}" comm.backend=nccl --ranks 8
  lines 0 '^assumed'
  expect 0 '"backend":"shm","stages":.*"stage":3,"ranks":8' "$kozero" plan "${gpt2[@]}" --ranks 8 --json
  expect 0 '^    8 shm        full +[0-9.]+.? +[0-9.]+.? +[0-9.]+. +[0-9.]+[*]' "$kozero" plan "${gpt2[@]}" \
    --ranks 1,8 --memory 2GiB
  also '^1 rank: fits with zero.offload_optimizer=disk .[0-9.]+ GiB per rank, [0-9.]+ [GM]iB to spare, and [0-9.]+ [GM]iB of disk, [0-9.]+ m?s per step.'
  also '^8 ranks: fits'
  expect 0 '^limited by +products' "$kozero" plan "${gpt2[@]}" --ranks 2
  also '^rates: [0-9]+ GFLOP/s of products and [0-9.]+ GB/s of memory on [0-9]+ threads? here; a rank has 1(;|$)'
  expect 0 '^rates: H100: half of the published peak, 34 TFLOP/s' "$kozero" plan "${gpt2[@]}" --ranks 8 --device h100
  also '^behind it: communication +[0-9.]+'
  also '^assumed: comm.backend = auto takes nccl'
  expect 0 '"fits":.*"ranks":8,"fits":true,"overrides":' "$kozero" plan "${gpt2[@]}" --ranks 1,8 \
    --memory 2GiB --json
  expect 2 '"2"; accepted: a size from 1 B to .*, such as 48GB or 512MiB' "$kozero" plan "${gpt2[@]}" --memory 2
  expect 0 'parameters on 2 ranks' on 2 plan "${gpt2[@]}" --ranks 2
  lines 0 '^assumed'
  expect 0 '^2$' "$kozero" ranks train "$inputs/quickstart.toml"
  expect 0 'zero.stage' "$kozero" keys
  expect 0 'usage: kozero COMMAND' "$kozero" help
  make_text
  # shellcheck disable=SC2086
  expect 2 "checkpoint.staging_mib = 1: a rank's share of the state needs 12 MiB; accepted are that and more" on 2 train \
    "$inputs/quickstart.toml" 'data.text=["text"]' checkpoint.every=5 checkpoint.staging_mib=1
  expect 0 '^usage: kozero train DECK' on 2 train --help
  on_several_nodes
}

benches() {
  # shellcheck disable=SC2086
  expect 0 'medians of the ratios: a save has [0-9.]+ of the speed of plain writing' on 2 bench checkpoint \
    "$inputs/demos/synthetic.toml" run.dir=bench-run --runs 2 --json
  also '"save_over_write":[0-9.]+,"stall_over_copy":[0-9.]+}$'
  expect 0 '^0$' sh -c 'ls -d bench-run* 2>/dev/null | wc -l'
  local shape="model.layers=1 model.dim=16 model.heads=2 model.seq=16 train.micro_batch=2"
  # shellcheck disable=SC2086
  expect 0 'ms in all for the kernels of a step; shares are of [0-9.]+ GFLOP/s' "$kozero" bench kernels "$inputs/demos/synthetic.toml" \
    $shape --runs 2 --json
  also '^mlp up to weights +32 x 64 x 16 +2 .* GFLOP/s +[0-9]+ %( +[0-9.]+x)?$'
  also '^step share = .* GFLOP / .* ms / .* GFLOP/s = [0-9.]+ %$'
  also '^layernorm forward +32 x 16 +6 .* GB/s'
  also '^adamw .* GB/s +[0-9]+ %$'
  also '^{"kernels":\[{"kernel":"stream probe a = b \+ s c",.*"share":1.0},.*}\]}$'
  # shellcheck disable=SC2086
  expect 0 '^rope forward, backward +32 x 24 .* GB/s' "$kozero" bench kernels "$inputs/demos/synthetic.toml" $shape model.arch=llama \
    model.kv_heads=1 --runs 1
  also '^attention backward +B 2 H 2 KV 1 T 16 D 8 '
  # shellcheck disable=SC2086
  expect 0 'per micro-step, bf16, ' "$kozero" bench kernels "$inputs/demos/synthetic.toml" $shape train.precision=bf16 --runs 1
  # shellcheck disable=SC2086
  expect 0 '^product probe, base ' env KOZERO_TILE_UNITS=base "$kozero" bench kernels "$inputs/demos/synthetic.toml" $shape --runs 1
  expect 2 'bench kernels: model.arch = linear' "$kozero" bench kernels "$inputs/demos/linear_demo.toml" --runs 1
  # A layer has 4 products in forward and 8 in backward, the head 3. The deck has 2 micro-steps.
  # shellcheck disable=SC2086
  expect 0 '^kozero::matmul +30.0 ' on 2 bench step "$inputs/demos/synthetic.toml" $shape zero.stage=2 --runs 3 --json
  also '^in calls of reduce_scatter +6.0 '
  also '^[0-9.]+ ms per step \([0-9]+ tokens/s over all ranks\), .* = [0-9.]+ %$'
  also '^{"kernels":\[{"kernel":"kozero::.*"idle_share":0.[0-9]+,'
  also '"events":\[{"event":"data","kind":"phase",.*{"event":"reduce_scatter","kind":"start",.*"end_s":null}.*"event":"update"'
  also '^per step the host allocated arrays 0.0 times and waited for kernels [0-9.]+ times$'
  also '^kozero::sum_of_squares +1.0 +[0-9.]+$'
  cp out.txt step.txt
  expect 0 '^as long as they say$' awk '/^(kozero::|copy|Kokkos::)/ { sum += $(NF - 2) }
    / ms per step \(/ { total = $10; if (sum > total - 0.2 && sum < total + 0.2 && total < $1) print "as long as they say" }' step.txt
  expect 0 '^kozero::adamw_update ' "$kozero" bench step "$inputs/demos/synthetic.toml" $shape --runs 1
  expect 0 '^ +2097152 +262144 shm +shared windows, added in rank order( +[0-9.]+){3} +0( +[0-9.]+){2}$' \
    on 2 bench collectives --size 1MiB,2MiB --runs 2 --json
  also '^{"results":\[{"size":1048576,"count":131072,"type":"float","redop":"sum","root":"-1","out_of_place":{"time":[0-9.]+,'
  also '"bus_bw":[0-9.e-]+,"nwrong":0},"in_place":null,.*"p99_us":.*"backend":"MPI.s own",.*"over_mpi":1.0},.*}\]}$'
  lines 24 '^ +(1048576|2097152) .* (MPI.s own|mpi|shm|ring) '
  expect 0 '^ +4096 +512 ring +comm.exact, added in rank order' on 2 bench collectives --minbytes 1KiB --maxbytes 4KiB \
    --stepfactor 2 --backend ring --runs 1
  lines 18 '^ +(1024|2048|4096) .* (MPI.s own|ring) '
  expect 2 '--minbytes is larger than --maxbytes' on 2 bench collectives --minbytes 4KiB --maxbytes 1KiB
  expect 2 'bench collectives: --backend: "rong"; accepted: mpi | shm | ring; did you mean ring\?' on 2 bench collectives --backend rong
  expect 2 'one rank has nobody to send to' "$kozero" bench collectives
  expect 2 'bench "chekpoint": did you mean checkpoint\? accepted are checkpoint, kernels, step, stages, tune, collectives' on 2 bench chekpoint
}

# The file of bench tune: used in every stage, recorded by run and checkpoints, refused if it is for another device.
tuning() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny train.micro_batch=1 checkpoint.every=6
  expect 0 '^t.toml: [0-9]+ kinds; run.tuning=t.toml goes by it' on 2 bench tune "$@" --runs 1 --out t.toml
  also '^f32 = f32 x f32, 16 x 48 x 16, none none, bias +3 +[12] +[0-9.]+ +[0-9.]+ +[0-9.]+ % '
  also '^the products of a step: [0-9.]+ ms by the rule, [0-9.]+ ms as kept'
  also '^a whole step, measured in turn: [0-9.]+ ms by the rule, [0-9.]+ ms tuned'
  expect 0 '^"f32 = f32 x f32, 16 x 48 x 16, transpose none" = "' cat t.toml
  expect 2 't.toml.partial' ls t.toml.partial
  expect 0 'all stages agree bit for bit' on 2 verify "$@" run.tuning=t.toml
  expect 0 'precision    f32, products by [^,]* tuned by t.toml \([0-9]+ kinds\), attention' on 2 train "$@" run.tuning=t.toml
  lines 0 'hash of run.tuning'
  expect 0 same sh -c 'cmp t.toml run/tuning.toml && cmp t.toml run/step_000000006/tuning.toml && echo same'
  expect 0 '"tuning": "[0-9a-f]{32}"' cat run/step_000000012/manifest.json
  mv t.toml gone.toml
  expect 0 'validation   loss' "$kozero" eval run
  expect 0 'lowest stage' "$kozero" plan "$@" run.tuning=t.toml
  expect 3 '^\[rank 0\] error: t.toml: cannot open: No such file or directory$' on 2 train "$@" run.tuning=t.toml
  expect 0 '^note         the hash of run.tuning.s file is none and was [0-9a-f]{32} at step 12$' on 2 train "$@" \
    checkpoint.resume=auto run.steps=13
  expect 2 'tuning.toml' ls run/tuning.toml run/step_000000013/tuning.toml
  expect 0 '^note         the hash of run.tuning.s file is [0-9a-f]{32} and was none at step 13$' on 2 train "$@" checkpoint.resume=auto \
    run.steps=14 run.tuning=gone.toml
  sed 's/^device = .*/device = "a Z80"/' gone.toml >t.toml
  expect 3 '^\[rank 0\] error: t.toml: it was made for the device "a Z80", this is ".+"; `kozero bench tune` makes one here$' \
    on 2 train "$@" run.tuning=t.toml run.dir=refused
  sed 's/^library = .*/library = "oneDNN 0.1"/' gone.toml >t.toml
  expect 3 't.toml: it was made for the library "oneDNN 0.1", this is "KoZeRO.s units"; ' "$kozero" verify "$@" run.tuning=t.toml
  sed 's/^\("f32.*\) = "[^"]*"$/\1 = "abacus"/' gone.toml >t.toml
  expect 3 't.toml: "f32 .*" = "abacus": there is no such algorithm here; accepted are "(AVX-512 BF16|AVX-512|AVX2|AMX|base)"' on 2 train "$@" run.tuning=t.toml run.dir=refused
  head -c 150 gone.toml >t.toml
  expect 3 't.toml(:[0-9]+)?: no tuning file: .*; `kozero bench tune` writes one$' on 2 train "$@" run.tuning=t.toml run.dir=refused
  expect 2 'run.products = "library": accepted: fastest \| portable \| tf32' "$kozero" train "$@" run.products=library
  expect 2 'refused' ls -d refused
}

# Kills a process and all its descendants at once.
kill_all() {
  for child in $(pgrep -P "$1"); do kill_all "$child"; done
  kill -9 "$1" 2>/dev/null
}

# A run that resumes under settings that change its bits prints one line about it.
resume_with_other_bits() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4 train.micro_batch=1 zero.stage=1
  expect 75 'stopped after step 1' on 2 train "$@" run.max_minutes=1e-9
  expect 75 'resume       after step 1' on 3 train "$@" run.max_minutes=1e-9 checkpoint.resume=auto
  lines 0 ' and was '
  expect 75 '^note         zero.accumulation is local and was ordered at step 2$' \
    on 2 train "$@" run.max_minutes=1e-9 checkpoint.resume=auto zero.accumulation=local
  expect 75 '^note         the number of ranks is 3 and was 2 at step 3$' \
    on 3 train "$@" run.max_minutes=1e-9 checkpoint.resume=auto zero.accumulation=local train.micro_batch=2
  also '^note         from here on the bits are not those of the run before$'
}

# A run stopped after one step (run.max_minutes) resumes in its folder with the bits of a run without a stop; also in
# another folder.
resume() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4 checkpoint.keep=0 train.micro_batch=1
  expect 0 'checkpoint   whole/step_000000012' on 2 train "$@" run.dir=whole
  expect 75 'stopped after step 1 .*; to go on: mpiexec -n 2 .* checkpoint.resume=auto run.dir=run$' on 2 train "$@" run.max_minutes=1e-9
  expect 0 'resume       after step 1, 96 tokens, from run/step_000000001' on 2 train "$@" checkpoint.resume=auto
  trace whole >whole.txt
  trace run >run.txt
  expect 0 same sh -c 'cmp whole.txt run.txt && echo same'
  expect 0 'stopped after step 1|step 12' cat run/log.txt
  expect 0 'checkpoint   .* GB/s\); stalled training [0-9.]+ s, [0-9.]+ s since the last checkpoint$' cat whole/log.txt
  expect 0 '"checkpoint":[0-9.]*[1-9]' cat whole/metrics.jsonl
  expect 0 '^step_000000001 step_000000004 step_000000008 step_000000012 $' sh -c "ls run | grep step_ | tr '\n' ' '"
  # Another number of ranks and another stage; a broken checkpoint is skipped by name and renamed; older ones are
  # pruned.
  printf x | dd of=run/step_000000012/state.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  expect 0 'skipped      run/step_000000012/state.h5: bytes 0 to' on 3 train "$@" checkpoint.resume=auto zero.stage=3 \
    checkpoint.keep=2
  expect 0 'set aside    run/step_000000012.old' cat run/log.txt
  expect 0 'resume       after step 8, 768 tokens' cat run/log.txt
  expect 0 '^12$' sh -c 'wc -l <run/metrics.jsonl'
  expect 0 '^step_000000008 step_000000012 step_000000012.old $' sh -c "ls run | grep step_ | tr '\n' ' '"
  # A path: another run's folder, into a new folder; a weights file, with a fresh optimizer.
  expect 0 'output in run-2' on 2 train "$@" checkpoint.resume=whole/step_000000008
  trace run-2 >run.txt
  expect 0 same sh -c 'tail -n 4 whole.txt | cmp - run.txt && echo same'
  expect 0 'warning      weights only: no optimizer/exp_avg' on 2 train "$@" checkpoint.resume=whole/weights.h5 run.steps=14
  # Differences are named; broken files are refused.
  expect 2 'model.dim is 32 and was 16; .*the global batch is 5 and was 6' "$kozero" train "$@" model.dim=32 \
    train.global_batch=5 checkpoint.resume=whole/step_000000008
  expect 2 'run.steps = 5: .*step 8; give at least that' "$kozero" train "$@" run.steps=5 checkpoint.resume=whole/step_000000008
  expect 3 'step_000000012.old/state.h5: bytes' "$kozero" train "$@" checkpoint.resume=run/step_000000012.old
  expect 2 'nowhere": nothing is there' "$kozero" train "$@" checkpoint.resume=nowhere
}

# A checkpoint is a model: inspect, eval and h5ls read it.
inspect() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=12
  expect 0 '/optimizer/exp_avg_sq/wte.weight  f32  \(256, 16\)' "$kozero" inspect run/step_000000012
  expect 0 'step         12, 1152 tokens' on 2 inspect run/step_000000012
  expect 0 'optimizer/exp_avg/h.0.attn.c_attn.weight Dataset \{16, 48\}' h5ls -r run/step_000000012/state.h5
  expect 0 'Attribute: tied_to' h5ls -v run/step_000000012/state.h5/parameters/wte.weight
  expect 0 'lm_head.weight' h5dump -a /parameters/wte.weight/tied_to run/weights.h5
  expect 0 'validation   loss' "$kozero" eval run
  cp out.txt first.txt
  expect 0 "$(cut -d, -f1 first.txt)" on 3 eval run/step_000000012
  printf x | dd of=run/step_000000012/deck.toml bs=1 seek=30 conv=notrunc 2>/dev/null
  expect 3 'deck.toml: bytes 0 to' on 2 inspect run/step_000000012 --verify
}

# kill -9 of all ranks at random times: each time the newest complete checkpoint loads, with the bits of the run.
crash() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny train.eval_every=0 optim.schedule=constant checkpoint.every=2 checkpoint.keep=2
  expect 75 'stopped after step 1' on 2 train "$@" run.max_minutes=1e-9
  last=1
  for round in 1 2 3 4 5 6 7 8 9 10; do
    on 2 train "$@" run.steps=100000 checkpoint.resume=auto >crash.txt 2>&1 </dev/null &
    sleep "0.$((RANDOM % 9 + 1))"
    until grep -q '^resume' crash.txt || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    kill_all $!
    wait $! 2>/dev/null
    expect 0 'resume       after step' cat crash.txt
    step=$(sed -n 's/^resume       after step \([0-9]*\),.*/\1/p' crash.txt)
    [ "${step:-0}" -ge "$last" ] || { echo "round $round: went on from step $step, before $last"; failures=$((failures + 1)); }
    last=$step
  done
  # The last round's run continued from `last`; how many further checkpoints it saved depends on the machine.
  newest=$(ls run | sed -n 's/^step_0*\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
  expect 0 'output in' on 2 train "$@" run.steps=$((newest + 200)) checkpoint.resume=auto
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$@" run.steps=$((newest + 200)) run.dir=whole checkpoint.every=0
  trace run >run.txt
  trace whole >whole.txt
  expect 0 same sh -c 'cmp whole.txt run.txt && echo same'
  expect 0 '^2$' sh -c 'ls run | grep -c step_'
}

run_case
