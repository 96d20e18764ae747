#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_training_cli.sh KOZERO MPIEXEC INPUTS CASE: the output and files of a training run: validation, its best
# checkpoint, provenance, notes on short trials, state on a disk, memory; and the comparisons of verify. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# 12 steps on text; further overrides may follow.
train_here() {
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $tiny "$@"
}

# easy_then_hard N: a text of N equal lines, then 400 different lines.
easy_then_hard() {
  mkdir -p text
  for i in $(seq 1 "$1"); do echo "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; done >text/a.txt
  for i in $(seq 1 400); do echo "line $i: the quick brown fox jumps over $i lazy dogs, again and."; done >>text/a.txt
}

# The val_loss of each step that has one.
val_losses() { sed -n 's/.*"step":\([0-9]*\),.*"val_loss":\([0-9][^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# A part of the validation set, spread over all of it: its loss is near that of the whole, and the same on any number of
# ranks.
validation() {
  easy_then_hard 1200
  set -- train.eval_every=4 data.val_fraction=0.5 optim.lr=1e-2
  expect 0 '^step 4: validation [0-9.]+ on 1,920 of [0-9]{2},[0-9]{3} tokens$' train_here "$@"
  also '^validation   loss [0-9.]+, perplexity .*, on 1,920 of [0-9]{2},[0-9]{3} tokens$'
  val_losses run >one.txt
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny "$@" run.dir=two
  val_losses two >two.txt
  expect 0 '^3 near$' awk 'NR == FNR { loss[$1] = $2; next } { near += (loss[$1] - $2) ^ 2 < 1e-8 } END { print near, "near" }' \
    one.txt two.txt
  expect 0 '^step 4: validation [0-9.]+ on ([0-9]{2},[0-9]{3}) of \1 tokens$' train_here "$@" train.eval_batches=0 run.dir=whole
  # The set keeps the text's order, so that its beginning is the easy half.
  part=$(tail -n 1 one.txt | cut -d' ' -f2) whole=$(val_losses whole | tail -n 1 | cut -d' ' -f2)
  expect 0 '^near$' awk -v part="$part" -v whole="$whole" 'BEGIN { if ((part - whole) ^ 2 < 0.04) print "near"; else print part, whole }'
}

# The checkpoint with the lowest validation loss is never pruned, also after resumes, and is exported by --best.
best() {
  easy_then_hard 400
  set -- checkpoint.every=2 checkpoint.keep=1 checkpoint.keep_best=true train.eval_every=0 optim.warmup_steps=0 \
    optim.schedule=constant train.grad_clip=0
  expect 0 '^checkpoint   run/step_000000004: .*; lowest validation loss so far$' train_here "$@" run.steps=4 optim.lr=1e-2
  val_losses run >losses.txt
  expect 0 '^2$' sh -c 'wc -l <losses.txt'
  expect 0 '"validation_loss": ' cat run/step_000000004/manifest.json
  # A learning rate that ruins the model: later checkpoints are worse, and are pruned.
  expect 0 '^resume       after step 4' on 2 train "$inputs/quickstart.toml" $tiny "$@" run.steps=10 optim.lr=0.5 checkpoint.resume=auto
  lines 0 'lowest validation loss so far'
  expect 0 '^step_000000004 step_000000010 $' sh -c "ls run | grep step_ | tr '\n' ' '"
  expect 0 '^from run/step_000000004 ' "$kozero" export run hf --best
  expect 0 '^from run/weights.h5 ' "$kozero" export run newest
  expect 0 '^validation   [0-9.]+$' "$kozero" inspect run/step_000000004
  expect 2 '^\[rank 0\] error: run/step_000000004: --best chooses among a run.s checkpoints; ' "$kozero" export run/step_000000004 x --best
  train_here run.dir=plain >/dev/null
  expect 2 '^\[rank 0\] error: plain: no checkpoint in it has a validation loss; with checkpoint.keep_best = true' \
    "$kozero" export plain x --best
  expect 2 'checkpoint.keep_best = true: accepted is false if checkpoint.every = 0' train_here checkpoint.keep_best=true checkpoint.every=0
  # A checkpoint saved by a stop was not validated, so it is not the best.
  expect 75 'its checkpoint is stopped/step_000000001' train_here "$@" run.dir=stopped run.max_minutes=1e-9
  expect 0 '^0$' sh -c 'grep -c validation_loss stopped/step_000000001/manifest.json; true'
  head -c 600 text/a.txt >text/b.txt && rm text/a.txt
  expect 2 'checkpoint.keep_best = true: the data are too few to keep any for validation' train_here "$@" data.val_fraction=0.001
}

# Version, commit, libraries, command and hosts: printed and recorded with a run; tensors do not depend on them.
provenance() {
  make_text
  expect 0 '^kozero [0-9]+\.[0-9]+\.[0-9]+$' "$kozero" --version
  also '^commit       ([0-9a-f]{12}(\+changes)?|unknown)$'
  for library in compiler kokkos mpi hdf5; do also "^$library +.*[0-9]\.[0-9]"; done
  also "^products     KoZeRO's units$"
  commit=$(sed -n 's/^commit  *//p' out.txt)
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=12 'run.dir="a b"'
  for file in 'a b/log.txt' 'a b/deck.toml'; do
    expect 0 "^(# )?commit       ${commit/+/\\+}$" cat "$file"
    also '^(# )?started      20[0-9-]+T[0-9:]+Z$'
    also '^(# )?ranks        2$'
    also "^(# )?hosts        $(uname -n)$"
    also "^(# )?command      mpiexec -n 2 .*kozero train .*'data.text=\[\"text\"\]'.* 'run.dir=\"a b\"'$"
  done
  expect 0 "\"commit\": \"${commit/+/\\+}\"" cat 'a b/step_000000012/manifest.json'
  expect 0 '^hosts        ' "$kozero" inspect 'a b/step_000000012'
  expect 0 'output in' on 2 train 'a b/deck.toml' run.dir=again
  expect 0 '^no difference in 48 tensors$' "$kozero" inspect 'a b/step_000000012' --diff again/step_000000012
  expect 0 '"time":[0-9]{10}\.[0-9]+,"epoch":0\.0[0-9]+,"bytes_across_groups":0,"calls":\{.*\}\}$' tail -n 1 'a b/metrics.jsonl'
}

# A short trial of a deck that was made for a long run; more ranks than sequences; numbers that have names.
short_trials() {
  make_text
  expect 0 '^note         optim.warmup_steps = 100 .12 used.: more than the run.s 12 steps allow$' train_here optim.warmup_steps=100
  lines 1 'steps allow'
  expect 0 '"lr":' tail -n 1 run/metrics.jsonl
  expect 0 '^note         1 of 3 ranks has no work .*: 2 sequences make 2 granules of train.micro_batch = 1; .* too few' \
    on 3 train "$inputs/quickstart.toml" $tiny train.global_batch=2 train.micro_batch=1
  lines 1 'ranks has no work'
  also '^memory plan  [0-9.]+ MiB of arrays per rank: '
  also '^memory       per rank: arrays planned [0-9.]+ MiB, allocated [0-9.]+ MiB; peak process memory [0-9.]+ MiB \([0-9.]+ MiB before the arrays; a page that n processes share counts as 1/n, in .resident. above as 1\)$'
  also '^step 12/12 .* resident$'
  also '^loss         of single steps: [0-9.]+ at step 1, [0-9.]+ at step 12; [0-9]+ tokens/s \(median\)$'
  expect 0 '^note         1 of 3 ranks .*: 16 sequences make 8 granules of train.micro_batch = 2; train.micro_batch=3 gives all ranks work' \
    on 3 train "$inputs/quickstart.toml" $tiny train.global_batch=16 train.micro_batch=2
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny train.global_batch=2 train.micro_batch=1
  lines 0 'no work'
  train_here run.dir=bare checkpoint.every=0 >/dev/null
  expect 0 '^note         bare was finished at step 12; it has no checkpoints, model.init=bare begins with its weights; this run writes bare-2; run.dir=bare-2 continues that one$' \
    train_here run.dir=bare checkpoint.every=0 checkpoint.resume=auto
}

offload() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny zero.stage=3 train.precision=bf16 checkpoint.every=6
  expect 0 'output in' on 2 train "$@" run.dir=memory
  expect 0 '^memory plan .*; on disk [0-9.]+$' on 2 train "$@" run.dir=disk zero.offload_optimizer=disk \
    zero.offload_parameters=disk zero.offload_mib=1
  also '^note +saving is synchronous: state on a disk has no copy in memory$'
  also '^no sample of text, since the weights are on a disk; kozero generate disk reads them into memory$'
  expect 0 same sh -c 'h5diff memory/weights.h5 disk/weights.h5 /parameters && echo same'
  expect 0 same sh -c 'h5diff memory/step_000000012/state.h5 disk/step_000000012/state.h5 && echo same'
  expect 0 'output in' on 3 train "$@" run.dir=disk checkpoint.resume=disk/step_000000006 \
    zero.offload_optimizer=disk zero.stage=1
  expect 0 same sh -c 'h5diff memory/weights.h5 disk/weights.h5 /parameters && echo same'
  expect 2 'zero.offload_optimizer = "host": the arrays of a run on the host lie in its memory already; accepted are none, disk' \
    "$kozero" train "$@" zero.offload_optimizer=host
  expect 2 'zero.offload_parameters = "disk": .*zero.stage' "$kozero" train "$@" zero.stage=1 zero.offload_parameters=disk
  expect 2 '^\[rank 0\] error: zero.offload_dir = "/dev/shm": it lies in memory .tmpfs.' on 2 train "$@" run.dir=refused \
    zero.offload_optimizer=disk zero.offload_dir=/dev/shm
  expect 2 'zero.offload_dir = "not/there": no such folder here; make it on each node' on 2 train "$@" run.dir=refused \
    zero.offload_optimizer=disk zero.offload_dir=not/there
  expect 2 'No such file' ls refused
  expect 2 'zero.offload_mib = 64: nothing reads it if zero.offload_optimizer = "none" .default.; accepted only with' \
    "$kozero" train "$@" zero.offload_mib=64
  expect 0 'validation   loss' "$kozero" eval disk
  expect 0 '^ +12  loss .* equal$' on 2 verify disk --replay 12
  expect 0 '^on disk +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$kozero" plan "$@" zero.offload_optimizer=disk --ranks 4 \
    run.threads=1
}

# Sharding in groups of ranks: the files and bits are those of one group; runs resume with other groups.
groups() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny zero.stage=3 checkpoint.every=6
  expect 0 'output in' on 4 train "$@" run.dir=one
  expect 0 '^ZeRO +stage 3 on 4 ranks in 2 groups of 2: parameters sharded' on 4 train "$@" run.dir=two zero.shard_group=2
  expect 0 same sh -c 'h5diff one/weights.h5 two/weights.h5 /parameters && echo same'
  expect 0 same sh -c 'h5diff one/step_000000012/state.h5 two/step_000000012/state.h5 && echo same'
  expect 0 '"bytes_across_groups":[1-9]' cat two/metrics.jsonl
  expect 0 '"bytes_across_groups":0' cat one/metrics.jsonl
  expect 0 'output in' on 2 train "$@" run.dir=two checkpoint.resume=two/step_000000006 zero.shard_group=1 \
    zero.stage=1
  expect 0 same sh -c 'h5diff one/weights.h5 two/weights.h5 /parameters && echo same'
  expect 0 '^ZeRO +stage 3 on 2 ranks in 2 groups of 1' env KOZERO_RANKS_PER_NODE=1 $mpiexec -n 2 "$kozero" train "$@" \
    run.dir=nodes zero.shard_group=node
  also '^note +zero.shard_group = "node": a node has one rank, which holds all of the state$'
  expect 0 '^shard_group *= *"node"' grep shard_group nodes/deck.toml
  expect 0 same sh -c 'h5diff one/weights.h5 nodes/weights.h5 /parameters && echo same'
  expect 0 '^ +12  loss .* equal$' on 4 verify two --replay 12 zero.shard_group=2
  expect 0 '^ +12  loss .* equal$' on 3 verify two --replay 12
  expect 0 'validation   loss' on 3 eval two
  expect 0 '^note +zero.shard_group = 8: these are 2 ranks, one group$' on 2 train "$@" run.dir=few zero.shard_group=8
  expect 2 '^\[rank 0\] error: zero.shard_group = 2: 3 ranks are no whole number' on 4 verify "$@" zero.shard_group=2 \
    --ranks 1,2,3
  lines 0 '^ranks  stage'
  expect 0 'all stages agree bit for bit on 2 ranks' on 3 verify "$@" zero.shard_group=2 --ranks 2
  expect 2 '^\[rank 0\] error: zero.shard_group = 2: 3 ranks are no whole number of such groups; give a divisor of' \
    on 3 train "$@" run.dir=refused zero.shard_group=2
  expect 2 'No such file' ls refused
  expect 0 '^of it to other groups +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$kozero" plan "$@" zero.shard_group=2 --ranks 8
  expect 0 '^16 ranks: sends [0-9.]+ [MG]iB per step between groups in place of [0-9.]+ [MG]iB with zero.shard_group=8 [(]' \
    "$kozero" plan "${gpt2[@]}" zero.stage=2 --ranks 16 --device h100 --memory 3GiB --reserve 0
  expect 0 '^assumed: nodes of 8 ranks$' "$kozero" plan "$@" --ranks 16 zero.shard_group=node
  also '^assumed: comm.backend = auto takes mpi, the ranks being on several nodes$'
  expect 2 'zero.shard_group = "node", 8 ranks: 12 ranks are no whole number' "$kozero" plan "$@" --ranks 12 \
    zero.shard_group=node
}

# The vocabulary in blocks: the same files; runs resume with other blocks, and print a note.
vocabulary_blocks() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=6
  expect 0 'output in' on 4 train "$@" run.dir=blocks zero.stage=3 model.vocab_block=64
  also '^model .*, vocabulary 256 in blocks of 64: .* in [0-9]+ units$'
  expect 0 'output in' on 1 train "$@" run.dir=one zero.stage=0 model.vocab_block=64
  expect 0 same sh -c 'h5diff blocks/weights.h5 one/weights.h5 /parameters && echo same'
  expect 0 '^/parameters/wte.weight +Dataset \{256, ' h5ls -r blocks/weights.h5
  expect 0 'output in' on 3 train "$@" run.dir=blocks checkpoint.resume=blocks/step_000000006 zero.stage=2 \
    model.vocab_block=64
  lines 0 'bits are not those'
  expect 0 same sh -c 'h5diff blocks/weights.h5 one/weights.h5 /parameters && echo same'
  expect 0 'output in' on 2 train "$@" run.dir=other checkpoint.resume=blocks/step_000000006 zero.stage=2
  also '^note +model.vocab_block is 0 and was 64 at step [0-9]+$'
  expect 0 '^ +12  loss .* equal$' on 2 verify blocks --replay 12
  expect 0 'validation   loss' on 2 eval blocks
  expect 0 'rate +prompt' "$kozero" generate blocks --prompt ab --tokens 5
  expect 0 'all stages and back ends agree bit for bit' on 2 verify "$@" model.vocab_block=96 --ranks 1,2 --all --steps 2
  expect 2 'model.vocab_block = 100: accepted: 0 .* and multiples of 8$' "$kozero" plan "$@" model.vocab_block=100
}

# Several blocks per unit: the bits are those of one block per unit; runs resume with other units.
buckets() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=6 model.layers=3
  expect 0 'output in' on 2 train "$@" run.dir=apart zero.stage=3
  expect 0 'output in' on 4 train "$@" run.dir=together zero.stage=3 zero.bucket_mib=64
  also '^model .* in 3 units$'
  expect 0 same sh -c 'h5diff apart/weights.h5 together/weights.h5 /parameters && echo same'
  expect 0 'output in' on 3 train "$@" run.dir=together checkpoint.resume=together/step_000000006 zero.stage=1
  lines 0 'bits are not those'
  expect 0 same sh -c 'h5diff apart/weights.h5 together/weights.h5 /parameters && echo same'
  expect 2 'zero.bucket_mib = -1: accepted' "$kozero" plan "$@" zero.bucket_mib=-1
  expect 2 'zero.bucket_mib' "$kozero" plan "$inputs/quickstart.toml" model.arch=linear zero.bucket_mib=4
}

# plan for several numbers of ranks, and its advice if memory is short.
planned_ranks() {
  expect 0 '^   64 MiB sent per step +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ *$' "$kozero" plan "${gpt2[@]}" \
    --ranks 8,64 --device host zero.offload_optimizer=host
  also '^    8 step, estimated( +[0-9.]+ m?s){4} *$'
  also '^64 ranks: 56 have no work, a step has 8 micro-batches$'
  also '^ignored: zero.offload_optimizer = host, '
  expect 0 ' model.vocab_block=2048 [(]4[0-9.]+ MiB per rank, [0-9.]+ [KM]iB to spare, [0-9.]+ m?s per step[)]$' "$kozero" plan "${gpt2[@]}" --ranks 8 \
    --memory 450MiB --reserve 0 --device h100
  expect 0 '^2 ranks: fits with .*zero.offload_optimizer=host .*[0-9.]+ GiB per rank, [0-9.]+ [GM]iB to spare, and [0-9.]+ GiB of the host.s, [0-9.]+ m?s per step' \
    "$kozero" plan "${gpt2[@]}" model.preset=gpt2-1558m --ranks 2 --memory 8GiB --reserve 0 --device h100
  also '^total, selective +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
  expect 0 '^ignored: zero.offload_optimizer = disk, ' "$kozero" plan "${gpt2[@]}" \
    --ranks 2 --device h100 zero.offload_optimizer=disk
  also '^2 ranks: fits with zero.offload_optimizer=none '
  also '^model.vocab_block=8192 +[0-9.]+ +[0-9.]+ m?s$'
  expect 0 '^8 ranks: nothing that plan tries fits: ' "$kozero" plan "${gpt2[@]}" --ranks 8 --memory 100MiB
}

# plan: the reserve of a GPU, a faster stage that also fits, sizes with units, given rates, and a hint.
plan_for_gpus() {
  printf '[run]\nsteps = 10\n[model]\narch = "llama"\npreset = "llama-13b"\nseq = 2048\n[data]\nsynthetic = true\n[train]\n%s%s' \
    $'global_batch = 128\nmicro_batch = 1\nprecision = "bf16"\n' $'[zero]\nstage = 3\n' >13b.toml
  expect 0 '^32 ranks: fits as it is [(][0-9.]+ GiB per rank, [0-9.]+ GiB to spare, [0-9.]+ s per step[)]' \
    "$kozero" plan 13b.toml --ranks 32 --device a100
  also '^32 ranks: recommended: zero.stage=[012], estimated [0-9]+ % less time [(][0-9.]+ GiB per rank, '
  expect 0 'rates: RTX 4090' "$kozero" plan 13b.toml --ranks 32 --device "RTX 4090"
  expect 2 'plan: --device: "v100"; accepted: host . a100 .*' "$kozero" plan 13b.toml --device v100
  expect 0 '^32 ranks: fits as it is ' "$kozero" plan 13b.toml --ranks 32 --device a100
  also '^reserve: 2.0 GiB per rank for the CUDA context, NCCL and libraries, an estimate [(]--reserve SIZE[)]$'
  also '^GiB on the fullest rank '
  also '^total +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
  also '^of it on the GPU +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
  also '^one change at a time, stage 3 +GiB +per step$'
  # The figure of the deck without a change is the GPU's in the table and in the advice, and that of several ranks.
  none=$(sed -n 's/^none  *\([0-9.]*\) .*/\1/p' out.txt)
  also "^of it on the GPU .* $none\$"
  expect 0 "^   32 nccl .* $none[*]\$" "$kozero" plan 13b.toml --ranks 8,32 --device a100
  also '; GiB of GPU memory on the fullest rank, [*] if it fits$'
  also '^   32 GiB of host memory '
  # A run that fits without the reserve, by less than the reserve, does not fit with it.
  bytes=$("$kozero" plan 13b.toml --ranks 32 --device a100 --json 2>/dev/null |
    python3 -c 'import json, sys; print([s for s in json.load(sys.stdin)["stages"] if s["stage"] == 3][0]["device"])')
  expect 0 '^32 ranks: fits as it is ' "$kozero" plan 13b.toml --ranks 32 --device a100 \
    --memory $((bytes / 1048576 + 1))MiB --reserve 0
  lines 0 '^reserve'
  expect 0 '^32 ranks: fits with train.recompute=' "$kozero" plan 13b.toml --ranks 32 --device a100 \
    --memory $((bytes / 1048576 + 1))MiB
  expect 0 '"overrides":\[\].*"spare":[0-9]+.*"recommended":[{]"overrides":\["zero.stage=.*"reserve":2147483648,' \
    "$kozero" plan 13b.toml --ranks 32 --device b200 --memory 80GB --json
  expect 0 '^rates: given: 180 TFLOP/s of products, 700 GB/s of memory, links of 25 GB/s$' "$kozero" plan 13b.toml \
    --ranks 32 --memory 48GB --rates 180,700,25
  also '^note: 32 x 44.7 GiB are more than is free here, .*give --device: a100, h100, gh200, h200, b200, l40s, l40, a6000, rtx4090$'
  expect 2 '"180,700"; accepted: three numbers > 0, separated by commas' "$kozero" plan 13b.toml --rates 180,700
  expect 2 '"48"; accepted: a size from 1 B to .*, such as 48GB or 512MiB' "$kozero" plan 13b.toml --memory 48
  expect 2 '1.0 GiB leave nothing beside the reserve of 2.0 GiB; give more, or --reserve SIZE$' "$kozero" plan 13b.toml \
    --ranks 32 --device rtx4090 --memory 1GiB
}

# memory_error_of RANKS OVERRIDE...: trains one step; the difference in percent between the process's peak memory and
# the sum of its memory before the run and the plan's arrays.
memory_error_of() {
  ranks=$1
  shift
  on "$ranks" train "${gpt2[@]}" 'data.text=["text"]' run.dir=m data.tokenizer=bytes run.steps=1 \
    model.layers=2 model.dim=1024 model.heads=8 model.vocab=65536 model.seq=64 train.global_batch=4 train.eval_batches=1 \
    train.eval_every=0 "$@" >memory.txt 2>&1 || { cat memory.txt; return 1; }
  sed -n 's/^memory  .*planned \([0-9.]*\) MiB.*peak process memory \([0-9.]*\) MiB (\([0-9.]*\) MiB before.*/\1 \2 \3/p' memory.txt |
    awk -v deck="$ranks ranks $*" '{printf "%.1f percent: %.1f MiB planned, %.1f before, %.1f at most: %s\n",
      100 * ($2 - $1 - $3) / $1, $1, $3, $2, deck}'
}

# For 12 decks the peak memory of a process is what was planned and what it had before, within 2 %; with weights on a
# disk it is at most that, since not all booked pages are in memory at once. It takes too long for ctest: `cmake --build
# build/release --target memory_decks`.
memory() {
  make_text
  {
    memory_error_of 1 zero.stage=0
    memory_error_of 1 zero.stage=0 train.precision=bf16 train.micro_batch=4
    memory_error_of 2 zero.stage=0 comm.backend=mpi
    memory_error_of 2 zero.stage=1 train.micro_batch=2
    memory_error_of 2 zero.stage=1 train.precision=bf16
    memory_error_of 2 zero.stage=2 comm.backend=mpi train.precision=fp16
    memory_error_of 2 zero.stage=2
    memory_error_of 2 zero.stage=3
    memory_error_of 2 zero.stage=3 train.precision=bf16 train.recompute=full train.micro_batch=2
    memory_error_of 2 zero.stage=3 comm.backend=mpi zero.prefetch_units=2
    memory_error_of 2 zero.stage=1 train.precision=bf16 zero.offload_optimizer=disk zero.offload_mib=16
    memory_error_of 2 zero.stage=3 zero.offload_optimizer=disk zero.offload_parameters=disk zero.offload_mib=16
  } >errors.txt
  cat errors.txt
  expect 0 '^11$' sh -c 'head -n 11 errors.txt | grep -cE "^-?[01]\.[0-9] percent"'
  expect 0 '^(-[0-9.]+|[01]\.[0-9]) percent' tail -n 1 errors.txt
}

# verify of back ends and, with a trace in a file, of numbers of threads; a difference is printed with its step, tensor
# and element.
verify_all() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny
  expect 0 '^all stages and back ends agree bit for bit on 1, 2 ranks of 1 thread$' on 2 verify "$@" --all --ranks 1,2 --steps 1
  lines 1 '^ranks  stage  back end  threads '
  lines 4 '^ +1 +[0-3] +self +1 .* equal$'
  lines 8 '^ +1 +[0-3] +(mpi|shm) +1 .* equal$'
  lines 8 '^ +2 +[0-3] +(mpi|shm) +1 .* equal$'
  lines 6 '^ +2x1 +[1-3] +(mpi|shm) +1 .* equal$'
  expect 0 '^all stages agree bit for bit on 1 rank of 1 thread$' "$kozero" verify "$@" --reference trace --steps 2
  expect 0 '^all stages agree bit for bit on 1 rank of 2 threads, and with those of 1 thread$' "$kozero" verify "$@" \
    --reference trace --steps 2 run.threads=2
  lines 4 '^ +1 +[0-3] +self +2 .* equal$'
  # A weight's gradient sums 2,048 rows, many more than it has channels.
  local wide='model.dim=64 model.seq=256 train.global_batch=8 train.micro_batch=8 --reference wide --steps 1'
  # shellcheck disable=SC2086
  expect 0 '^all stages agree bit for bit on 1 rank of 1 thread$' "$kozero" verify "$@" $wide
  # shellcheck disable=SC2086
  expect 0 '^all stages agree bit for bit on 1 rank of 3 threads, and with those of 1 thread$' "$kozero" verify "$@" $wide \
    run.threads=3
  expect 1 '^\[rank 0\] error: the bits differ: 2 ranks, stage 0, shm, 1 thread: step 1: the bits of wte.weight after it; wte.weight\[0\] is [-0-9.e]+ and was [-0-9.e]+ after step 2$' \
    on 2 verify "$@" --reference trace --steps 2 optim.weight_decay=0.7
  lines 4 ' DIFFERS in step 1: '
  expect 3 '^\[rank 0\] error: trace: it is of another model or another number of steps' "$kozero" verify "$@" --reference trace
  expect 3 'text/a.txt: no whole trace of verify' "$kozero" verify "$@" --reference text/a.txt
  expect 2 'verify: ' "$kozero" verify run --replay 3 --all
}

# stop_and_resume UNITS OVERRIDE...: a run with the units up to UNITS stops after step 1; one with all units continues it.
stop_and_resume() {
  local units=$1
  shift
  expect 75 'stopped after step 1 ' env KOZERO_TILE_UNITS="$units" $mpiexec -n 2 "$kozero" train "$@" run.max_minutes=1e-9
  expect 0 'resume       after step 1' on 2 train "$@" checkpoint.resume=auto
}

# A run keeps its bits when it resumes with other units, if both add fused products of floats. Else a line says so.
resume_with_other_units() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny model.dim=32 checkpoint.every=4 train.micro_batch=1
  local portable='train.precision=bf16 run.products=portable'
  for deck in train.precision=f32 "$portable"; do
    rm -rf whole resumed
    # shellcheck disable=SC2086
    expect 0 'output in' on 2 train "$@" $deck run.dir=whole
    # shellcheck disable=SC2086
    stop_and_resume AVX2 "$@" $deck run.dir=resumed
    lines 0 ' and was |not those of the run before'
    trace whole >whole.txt
    trace resumed >resumed.txt
    expect 0 '^12 steps$' sh -c 'cmp whole.txt resumed.txt && echo $(wc -l <whole.txt) steps'
    expect 0 '^no difference in ' "$kozero" inspect whole/step_000000012 --diff resumed/step_000000012
  done
  stop_and_resume AVX2 "$@" train.precision=bf16 run.dir=bf16
  if grep -Eq 'products by (AMX|AVX-512 BF16),' out.txt; then
    also '^note         products is (AMX|AVX-512 BF16 in the order of k) and was one chain of fused multiply-adds at step 1$'
    also '^note         from here on the bits are not those of the run before$'
    lines 1 ' and was '
  fi
  stop_and_resume base "$@" run.dir=base
  if grep -Eq 'products by AVX' out.txt; then
    also '^note         products is one chain of fused multiply-adds and was rounded before they are added at step 1$'
    expect 0 '^note         this processor has no fused multiply-add: its bits differ from those of other processors$' \
      env KOZERO_TILE_UNITS=base "$kozero" train "$@" run.dir=without_fma
    expect 0 'output in' "$kozero" train "$@" run.dir=with_fma
    lines 0 'no fused multiply-add'
  fi
  expect 2 "KOZERO_TILE_UNITS: there is no unit 'none'; accepted: base, AVX2, AVX-512, AVX-512 BF16, AMX$" \
    env KOZERO_TILE_UNITS=none "$kozero" train "$@" run.dir=refused
}

# A resumed run prints each key that changes its bits, with both values; a return to the deck's value is a change too.
resume_with_other_keys() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.every=4 optim.lr=2e-3 optim.min_lr=2e-4
  expect 0 '^folder       run$' "$kozero" train "$@"
  expect 0 '^note         run was finished at step 12; checkpoint.resume=auto with more run.steps continues it; this run writes run-2$' \
    "$kozero" train "$@" run.steps=1
  expect 0 '^note         run-2 was finished at step 1; checkpoint.resume=auto run.dir=run-2 with more run.steps continues it; this run writes run-3$' \
    "$kozero" train "$@" run.steps=1
  expect 75 '^note         optim.lr is 5e-4 and was 0.002 at step 12$' "$kozero" train "$@" run.steps=20 optim.lr=5e-4 \
    'optim.betas=[0.8, 0.9]' optim.weight_decay=0.3 train.grad_clip=0.5 run.max_minutes=1e-9 checkpoint.resume=auto
  also '^note         optim.betas is \[0.8, 0.9\] and was \[0.9, 0.95\] at step 12$'
  also '^note         optim.weight_decay is 0.3 and was 0.1 at step 12$'
  also '^note         train.grad_clip is 0.5 and was 1.0 at step 12$'
  also '^note         run.steps is 20 and was 12 at step 12: the learning rate rises again, from [0-9.]+ to [0-9.e-]+ at step 13$'
  also '^note         from here on the bits are not those of the run before$'
  lines 7 '^note  '
  expect 75 '^note         optim.lr is 0.002 and was 5e-4 at step 13$' "$kozero" train "$@" run.steps=20 \
    run.max_minutes=1e-9 checkpoint.resume=auto
  expect 0 '^resume ' "$kozero" train "$@" run.steps=20 checkpoint.resume=auto run.threads=1 log.every=3 checkpoint.keep=2
  lines 0 ' and was '
  # Another batch size needs a new run; the error prints the command that starts it.
  expect 2 'run/step_000000020: the deck disagrees with it: the global batch is 8 and was 6; train.global_batch=6 goes on; model.init=run/step_000000020 checkpoint.resume=none begins a new run from these weights, with a fresh optimizer, at any batch$' \
    "$kozero" train "$@" run.steps=20 checkpoint.resume=auto train.global_batch=8
  expect 0 '^init         weights of run/step_000000020' "$kozero" train "$@" run.steps=2 train.global_batch=8 \
    model.init=run/step_000000020 checkpoint.resume=none
}

run_case
