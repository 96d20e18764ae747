#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_start_cli.sh KOZERO MPIEXEC INPUTS CASE: errors and notes at the start of a command, before it spends time; and
# ranks that see different files. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# 12 steps on text, with a checkpoint every 4 steps; further overrides may follow.
train_here() {
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" $tiny checkpoint.every=4 checkpoint.keep=0 "$@"
}

# Two ranks in the folders a and b: the same relative paths, different files.
in_two_folders() {
  local rank0="$kozero" rank1="$kozero"
  timeout 60 $mpiexec -n 1 sh -c 'cd a && exec "$@"' sh "$rank0" "$@" : -n 1 sh -c 'cd b && exec "$@"' sh "$rank1" "$@"
}

# The number of ranks is in a launcher's variable or in Slurm's of the job step. The variables of an salloc shell do not
# count.
ranks_alone() {
  local deck="$inputs/demos/linear_demo.toml"
  for variable in PMI_SIZE OMPI_COMM_WORLD_SIZE; do
    expect 2 "^\[rank 0\] error: $variable = 4, but MPI sees this process alone: it was built for another MPI .*; for a job of one process unset $variable$" \
      env $variable=4 "$kozero" train "$deck" run.dir=run
  done
  expect 2 'PMIX_RANK = 1, but MPI sees this process alone' env PMIX_RANK=1 "$kozero" plan "$deck"
  step='SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4'
  # shellcheck disable=SC2086
  expect 2 'SLURM_STEP_NUM_TASKS = 4, but MPI sees this process alone: .*srun --mpi' env $step "$kozero" eval nowhere
  lines 1 ''
  expect 2 'run' ls -d run
  expect 0 '^1$' env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 "$kozero" ranks train "$deck" run.ranks=1
  # shellcheck disable=SC2086
  expect 0 '^1$' env $step OMPI_COMM_WORLD_SIZE=1 "$kozero" ranks train "$deck" run.ranks=1
  # shellcheck disable=SC2086
  alone=(train "$deck" run.steps=1 run.dir=alone)
  expect 0 '^note         SLURM_NTASKS = 4, but this process runs alone; start it with srun or mpiexec -n 4 to use them$' \
    env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 "$kozero" "${alone[@]}"
  lines 1 'SLURM'
  for other in PMI_SIZE=1 OMPI_COMM_WORLD_SIZE=1 PMIX_RANK=0 SLURM_STEP_ID=0; do
    expect 0 '^step' env SLURM_NTASKS=4 $other "$kozero" "${alone[@]}"
    lines 0 'SLURM'
  done
  # shellcheck disable=SC2086
  expect 0 '^2$' env $step $mpiexec -n 2 "$kozero" ranks train "$deck" run.ranks=2
}

different_programs() {
  cp "$kozero" other
  ln -s "${kozero%/*}/arrow" .  # where the program looks for libraries
  printf x >>other
  expect 2 '^\[rank 0\] error: ranks 0 and 1 run different programs \(XXH3-128 [0-9a-f]{8}\.\.\. and [0-9a-f]{8}\.\.\.\): start the same build' \
    $mpiexec -n 1 "$kozero" train "$inputs/demos/linear_demo.toml" run.dir=run : -n 1 ./other train "$inputs/demos/linear_demo.toml" run.dir=run
  lines 1 'error'
  expect 2 'run' ls -d run
}

different_tokenizers() {
  make_text
  train_here data.tokenizer=bpe:300 >/dev/null
  mkdir a b
  cp -r run a && cp -r run b
  expect 0 '^line' text_of in_two_folders generate run --prompt line --tokens 5 --temperature 0
  expect 0 'already made|tokens' "$kozero" prepare text/a.txt other --tokenizer bpe:299
  cp other/tokenizer.json b/run/tokenizer.json
  expect 2 'ranks 0 and 1 read different tokenizers, bpe:300 [0-9a-f]* and bpe:299 [0-9a-f]*: give every rank the same file' \
    in_two_folders generate run --prompt line --tokens 5 --temperature 0
}

# A folder that cannot be written is reported before the text is tokenized, and so is a rank without its own cores.
# Waiting OpenMP threads spin for a bounded time, unless the user has set it. libgomp prints the values that it read.
waiting() {
  export OMP_DISPLAY_ENV=verbose
  expect 2 'error: absent.toml' "$kozero" train absent.toml
  grep -q GOMP_SPINCOUNT out.txt || return 0  # not libgomp
  also "GOMP_SPINCOUNT = '1000'"
  expect 2 "GOMP_SPINCOUNT = '1000'" on 2 verify absent.toml
  expect 2 "GOMP_SPINCOUNT = '77'" env GOMP_SPINCOUNT=77 "$kozero" train absent.toml
  lines 0 "GOMP_SPINCOUNT = '1000'"
  expect 2 "OMP_WAIT_POLICY = 'ACTIVE'" env OMP_WAIT_POLICY=active "$kozero" train absent.toml
  lines 0 "GOMP_SPINCOUNT = '1000'"
}

places() {
  make_text
  expect 4 '^\[rank 0\] error: run.dir = "text/a.txt/run": .*/text/a.txt: cannot make a file there: Not a directory; give a folder' \
    on 2 train "$inputs/quickstart.toml" 'data.text=["text"]' run.dir=text/a.txt/run
  lines 1 'error'
  expect 4 'run.dir = "/proc/run": /proc: cannot make a file there' train_here run.dir=/proc/run
  expect 0 '^note         ranks 0-1 on host .*: 128 threads share .*cores?.*give run.threads = [0-9]+' \
    env OMP_NUM_THREADS=64 $mpiexec -n 2 "$kozero" train "$inputs/demos/linear_demo.toml" run.dir=run run.steps=1
  expect 0 '^a.txt$' ls -A text
}

# run.bind: the banner, ranks.json and the system agree on where the threads of each rank run.
placement() {
  local step=("$kozero" train "$inputs/demos/linear_demo.toml" run.dir=placed run.steps=1 run.threads=1)
  expect 0 '^placement    1 thread (bound to|on) CPUs? .*communicator self' env -u OMP_PROC_BIND "${step[@]}"
  expect 0 '^placement    2 ranks on 1 host, communicator ' env -u OMP_PROC_BIND $mpiexec -n 2 "${step[@]}"
  lines 2 '^  rank [01]     [^ ]*: 1 thread (bound to|on) CPUs? [0-9]'
  expect 0 '"rank":1,.*"threads":1,"cpus":"[0-9]' cat placed-2/ranks.json
  expect 0 '^  rank 1     .*: 1 thread on CPUs? [-0-9,]+, not bound: run.bind = "none"' \
    env -u OMP_PROC_BIND $mpiexec -n 2 "${step[@]}" run.bind=none
  # The system has each rank's first thread on the CPUs that ranks.json names.
  local bind launcher pid cpus
  for bind in auto none; do
    env -u OMP_PROC_BIND $mpiexec -n 2 "${step[@]}" run.dir=$bind run.steps=1000000000 run.bind=$bind >run.txt 2>&1 </dev/null &
    launcher=$!
    for _ in $(seq 200); do [ -s $bind/metrics.jsonl ] && break; sleep 0.1; done
    expect 0 '^2$' sh -c "grep -o '\"pid\":[0-9]*,' $bind/ranks.json | wc -l"
    while read -r pid cpus; do
      expect 0 "[[:space:]]$cpus\$" grep '^Cpus_allowed_list:' "/proc/$pid/status"
    done <<<"$(grep -o '"pid":[0-9]*,"threads":1,"cpus":"[^"]*"' $bind/ranks.json | sed 's/.*"pid":\([0-9]*\),.*"cpus":"\(.*\)"/\1 \2/')"
    kill -TERM $launcher
    wait $launcher
  done
}

# Ranks that see different files under one name: all use rank 0's choice, or all refuse. No rank waits, and files are
# never mixed.
other_views() {
  make_text
  train_here >/dev/null
  expect 0 'hf:' "$kozero" export run hf
  train_here run.seed=5 run.dir=other >/dev/null
  mkdir a b
  # A checkpoint that only rank 0 sees is skipped by both ranks.
  cp -r run hf text a && cp -r run hf text b
  rm -r b/run/step_000000012 a/run/weights.h5 b/run/weights.h5
  resume=(train "$inputs/demos/synthetic.toml" run.dir=s run.steps=6 checkpoint.every=2 checkpoint.keep=0 checkpoint.resume=auto
    model.layers=1 model.dim=16 model.heads=2 model.seq=16 train.global_batch=6 train.micro_batch=2 train.eval_every=0
    optim.warmup_steps=2)
  expect 0 'output in' on 2 "${resume[@]}"
  cp -r s a && cp -r s b && rm -r b/s/step_000000006
  expect 4 '^\[rank 0\] error: run.dir = "s": rank 1 on host .* does not see the folder of rank 0 on host .*; give a folder' \
    in_two_folders "${resume[@]}"
  lines 1 'error'
  # The save fails, since rank 1 does not see the files that rank 0 makes, but the lock.
  ln -s ../../a/s/lock b/s/lock
  expect 4 '^skipped      s/step_000000006/manifest.json: cannot open: No such file' in_two_folders "${resume[@]}"
  also '^resume       after step 4'
  for path in run run/step_000000012; do
    expect 3 '^\[rank 0\] error: run/step_000000012/manifest.json: cannot open: No such file' \
      in_two_folders eval "$path" 'data.text=["text"]'
    lines 1 'error'
  done
  expect 3 'run/step_000000012/manifest.json: cannot open' in_two_folders inspect run --verify
  expect 0 'step         12' in_two_folders inspect run
  # Another checkpoint, weights file or Hugging Face folder of the same shapes under the name that rank 0 sees.
  cp -r other/step_000000012 b/run/
  expect 3 'run/step_000000012/manifest.json: ranks 0 and 1 find different files there: it was replaced meanwhile, or' \
    in_two_folders eval run 'data.text=["text"]'
  cp run/weights.h5 a/ && cp other/weights.h5 b/
  expect 3 'weights.h5: ranks 0 and 1 find different files there' in_two_folders generate weights.h5
  rm -r b/hf
  expect 0 'b/hf:' "$kozero" export other b/hf
  for stage in 0 3; do
    expect 3 '^\[rank 0\] error: hf: ranks 0 and 1 find different files there' in_two_folders generate hf zero.stage=$stage \
      data.tokenizer=bytes
    lines 1 'error'
  done
  # Only rank 0's config.json is read.
  rm -r b/hf && cp -r hf b/
  sed -i 's/"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 0.5/' b/hf/config.json
  expect 0 . text_of "$kozero" generate hf data.tokenizer=bytes --temperature 0 --tokens 20
  cp out.txt alone.txt
  expect 0 . text_of in_two_folders generate hf data.tokenizer=bytes --temperature 0 --tokens 20
  cp out.txt together.txt
  expect 0 '^0$' sh -c 'cmp alone.txt together.txt; echo $?'
}

# One rank's folder has the same shard without hashes: both read the shard. With other hashes: both refuse.
other_hashes() {
  make_text
  expect 0 'training' "$kozero" prepare text out
  mkdir a b && cp -r out a && cp -r out b
  rm b/out/train_000000.bin.xxh3
  # shellcheck disable=SC2086
  train=(train "$inputs/quickstart.toml" $small 'data.tokens=["out/train_000000.bin"]' model.vocab=256 comm.timeout_s=5)
  expect 0 '^step ' in_two_folders "${train[@]}" run.dir="$PWD/run"
  expect 0 '^step ' in_two_folders "${train[@]}" data.strict=true run.dir="$PWD/strict"
  sed 's/"[0-9a-f]\{32\}"/"0123456789abcdef0123456789abcdef"/' out/train_000000.bin.xxh3 >b/out/train_000000.bin.xxh3
  expect 3 '^\[rank 0\] error: out/train_000000.bin.xxh3: ranks 0 and 1 find different hashes there: give all' \
    in_two_folders "${train[@]}" run.dir=other
  lines 1 'error'
}

# A copied checkpoint has the step of its manifest. If every checkpoint is broken, no run starts.
checkpoint_names() {
  make_text
  train_here >/dev/null
  rm run/weights.h5
  cp -r run whole
  mv run/step_000000008 run/step_000000100
  rm -r run/step_000000012
  expect 0 '^resume       after step 8, ' train_here checkpoint.resume=auto
  expect 0 '^note         run/step_000000100: its manifest says step 8; it is called run/step_000000008 now$' cat run/log.txt
  expect 0 '^step_000000004 step_000000008 step_000000012 $' sh -c "ls run | grep step_ | tr '\n' ' '"
  rm -r run && cp -r whole run
  cp -r run/step_000000008 run/step_000000100
  expect 0 '^resume       after step 12, ' train_here checkpoint.resume=auto
  expect 0 '^set aside    run/step_000000100.old$' cat run/log.txt
  rm -r run && cp -r whole run
  for step in 4 8; do echo '{' >run/step_00000000$step/manifest.json; done
  printf x | dd of=run/step_000000012/state.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  # A failed start is recorded in status.json and log.txt; no other file changes.
  find run -type f ! -name status.json ! -name log.txt -exec cksum {} + | sort >before.txt
  expect 3 '^\[rank 0\] error: checkpoint.resume = "auto": none of the 3 checkpoints in run is whole, nothing was changed: run/step_000000012/state.h5: bytes .* \(and 2 more\); bring one back' \
    train_here checkpoint.resume=auto
  lines 1 'error'
  expect 0 same sh -c 'find run -type f ! -name status.json ! -name log.txt -exec cksum {} + | sort | cmp - before.txt && echo same'
  echo '{}' >run/step_000000004/manifest.json
  expect 3 'run/step_000000004/manifest.json: no "format_version"$' "$kozero" inspect run/step_000000004
  echo '{"format_version": "two"}' >run/step_000000004/manifest.json
  expect 3 'run/step_000000004/manifest.json: "format_version" is of another type: string$' "$kozero" inspect run/step_000000004
}

# Only regular files are opened: no command waits for a FIFO's writer, and a loop of links gives status 3.
no_regular_files() {
  make_text
  train_here >/dev/null
  expect 0 'hf:' "$kozero" export run hf
  mkfifo fifo fifo.toml fifo.h5
  cp -r hf hf2 && rm hf2/model.safetensors && mkfifo hf2/model.safetensors
  cp -r hf hf3 && rm hf3/config.json && mkfifo hf3/config.json
  cp -r hf hf4 && ln -sf config.json hf4/config.json
  short=(timeout 20 "$kozero")
  for command in "eval hf2" "generate hf2" "import hf2 out"; do
    # shellcheck disable=SC2086
    expect 3 'hf2/model.safetensors: not a regular file but a FIFO: copy its contents to a file$' "${short[@]}" $command
  done
  expect 3 'hf3/config.json: not a regular file but a FIFO' "${short[@]}" import hf3 out
  for command in "eval hf4" "import hf4 out"; do
    # shellcheck disable=SC2086
    expect 3 'hf4/config.json: .*Too many levels of symbolic links$' "${short[@]}" $command
  done
  rm -f hf/tokenizer.json && mkfifo hf/tokenizer.json
  expect 2 'no text without a tokenizer: hf/tokenizer.json: not a regular file but a FIFO' "${short[@]}" generate hf
  expect 2 'fifo.toml: no readable file: not a regular file but a FIFO' "${short[@]}" train fifo.toml
  expect 3 'fifo.h5: not a regular file but a FIFO' "${short[@]}" inspect fifo.h5
  train=("${short[@]}" train "$inputs/quickstart.toml" run.dir=x)
  expect 3 'fifo: not a regular file but a FIFO' "${train[@]}" 'data.text=["fifo"]'
  expect 3 'fifo: not a regular file but a FIFO' "${train[@]}" 'data.text=["text"]' data.tokenizer=fifo
  expect 3 'fifo: not a regular file but a FIFO' "${train[@]}" 'data.tokens=["fifo"]' data.tokenizer=bytes
  expect 3 'fifo: not a regular file but a FIFO' "${train[@]}" 'data.text=["text"]' run.tuning=fifo
  expect 3 'fifo.h5: not a regular file but a FIFO' train_here run.dir=x checkpoint.resume=fifo.h5
  cp -r run run2 && rm -r run2/metrics.jsonl run2/weights.h5 run2/step_000000012 && mkfifo run2/metrics.jsonl
  expect 4 'run2/metrics.jsonl: not a regular file, and a run writes here; move it away' timeout 60 "$kozero" train "$inputs/quickstart.toml" $tiny \
    run.dir=run2 checkpoint.every=4 checkpoint.keep=0 checkpoint.resume=auto
  rm run/weights.h5 run/step_000000012/manifest.json && mkfifo run/step_000000012/manifest.json
  expect 0 '^skipped      run/step_000000012/manifest.json: not a regular file but a FIFO' timeout 60 "$kozero" train \
    "$inputs/quickstart.toml" $tiny checkpoint.every=4 checkpoint.keep=0 checkpoint.resume=auto
  ln -s loop loop
  expect 3 'loop: Too many levels of symbolic links' "$kozero" eval loop
  expect 2 'loop: no readable file: .*Too many levels' "$kozero" train loop
  expect 3 'File name too long|no such file' "$kozero" eval run "data.text=[\"$(printf 'x%.0s' $(seq 300))\"]"
}

# A run's writes into its folder replace no link, wait for no FIFO, and do not fail because of a folder; no data is
# lost.
files_of_a_run() {
  make_text
  train_here >/dev/null
  echo precious >outside.txt
  for file in log.txt deck.toml metrics.jsonl status.json weights.h5; do
    for kind in fifo link folder; do
      rm -rf copy && cp -r run copy && rm copy/$file
      case $kind in
        fifo) mkfifo copy/$file ;;
        link) ln -s "$folder/outside.txt" copy/$file ;;
        folder) mkdir copy/$file ;;
      esac
      expect 4 "^\[rank 0\] error: copy/$file: not a regular file, and a run writes here; move it away\$" timeout 20 "$kozero" \
        train "$inputs/quickstart.toml" $tiny run.dir=copy run.steps=14 checkpoint.every=4 checkpoint.resume=auto
    done
  done
  expect 0 '^precious$' cat outside.txt
  ln -s nowhere dangling
  for resume in none auto; do
    expect 4 '^\[rank 0\] error: run.dir = "dangling": dangling is a symbolic link to nowhere, which does not exist; make that folder, or remove the link$' \
      train_here run.dir=dangling checkpoint.resume=$resume
  done
}

# 10,000 layers without memory for them: refused before a network is built.
many_layers() {
  make_text
  train_here >/dev/null
  expect 0 'hf:' "$kozero" export run hf
  sed -i 's/"n_layer": 1,/"n_layer": 10000,/; s/"n_embd": 16,/"n_embd": 4096,/' hf/config.json
  local most=4000000  # KiB of address space; AddressSanitizer itself needs more
  ! grep -q __asan_init "$kozero" || most=unlimited
  for command in "import hf out" "eval hf"; do
    # shellcheck disable=SC2086
    expect 3 '^\[rank 0\] error: hf/config.json: 10000 layers have 90000 tensors and more, the folder has 16$' \
      sh -c "ulimit -v $most; "'exec "$@"' sh "$kozero" $command
  done
  expect 2 '^\[rank 0\] error: the run needs [0-9.]+ [GMT]iB per rank' sh -c 'ulimit -t 60; exec "$@"' sh "$kozero" train \
    "$inputs/quickstart.toml" 'data.text=["text"]' run.dir=x model.preset=none model.layers=10000 model.dim=4096 \
    model.heads=32
}

# A preset on the command line replaces the deck's shape; one line lists the replaced keys.
preset_replaces() {
  expect 0 '^.*/llama.toml: 8030261248 parameters on 4 ranks' "$kozero" plan "$inputs/demos/llama.toml" model.preset=llama-8b \
    --ranks 4 --memory 48GB --device a100
  also "^note: command line: model.preset = \"llama-8b\" replaces the deck's layers, dim, heads, kv_heads, head_dim, ffn, vocab, tie_embeddings, rope_theta, rope_scaling, qkv_bias, qk_norm, norm_eps; model.seq = 128 stays$"
  lines 1 '^note'
  expect 0 ': 8030261248 parameters' "$kozero" plan "${gpt2[0]}" model.preset=llama3.1-8b --ranks 4 \
    --memory 48GiB --device a100
  expect 0 ': 596049920 parameters' "$kozero" plan "$inputs/demos/llama.toml" model.preset=qwen3-0.6b --ranks 2 --memory 8GB
  make_text
  # shellcheck disable=SC2086
  expect 0 "replaces the deck's layers, dim, heads$" "$kozero" train "$inputs/quickstart.toml" \
    'data.text=["text"]' data.tokenizer=bytes run.steps=1 run.dir=run model.preset=tiny model.seq=16 \
    train.global_batch=2
}

# The banner names the defaults that matter; a run leaves a checkpoint.
defaults_of_training() {
  cat >my.toml <<'DECK'
run.steps = 40
model.preset = "tiny"
model.seq = 8
data.synthetic = true
train.global_batch = 3
train.micro_batch = 2
DECK
  expect 0 '^defaults     optim.lr = 1e-4, optim.schedule = "cosine", optim.warmup_steps = 2, optim.betas = \[0.9, 0.95\], optim.weight_decay = 0.1, checkpoint.every = 1000, checkpoint.keep = 3$' \
    "$kozero" train my.toml run.dir=run
  also '^note: train.global_batch = 3 is no multiple of train.micro_batch = 2: the last micro-batch of each step has 1 sequence$'
  expect 0 'step_000000040' ls run
  expect 0 '"step":1,.*"lr":5e-05,' head -n 1 run/metrics.jsonl
  expect 0 '^defaults     optim.warmup_steps = 0$' "$kozero" train run/deck.toml run.dir=again run.steps=1
}

# Misplaced words, and other programs' names, are refused with the correct form.
misplaced_words() {
  local deck="$inputs/quickstart.toml"
  expect 2 '^\[rank 0\] error: train: DECK is missing; example: kozero train inputs/quickstart.toml .*; usage: kozero train DECK' \
    "$kozero" ranks train
  for command in "ranks train" train; do
    # shellcheck disable=SC2086
    expect 2 '^\[rank 0\] error: train: -n goes before the command: ./kozero.sh -n 2 train ..., or mpiexec -n 2 kozero train ...; usage' \
      "$kozero" $command "$deck" -n 2
    # shellcheck disable=SC2086
    expect 2 '^\[rank 0\] error: train: --stage is no option; did you mean zero.stage=2\?' "$kozero" $command "$deck" --stage 2
    # shellcheck disable=SC2086
    expect 2 'train: --learning_rate=1 is no option; did you mean optim.lr=1\?' "$kozero" $command "$deck" --learning_rate=1
  done
  expect 2 'verify: --stps is no option; did you mean --steps\?' "$kozero" verify "$deck" --stps 2
  expect 2 'model.hidden_size = 64: no such key; did you mean model.dim\?$' "$kozero" train "$deck" model.hidden_size=64
  expect 2 'inspect: [A-Z]+ is missing; example: kozero inspect runs/quickstart' "$kozero" inspect
  expect 3 'data.text: /nowhere: no such file' "$kozero" train "$deck" 'data.text=[/nowhere]' run.dir=run
}

# Output that cannot be printed is a failed write, except if the reader has closed its pipe.
unwritable_output() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny
  # shellcheck disable=SC2086,SC2116
  for command in keys help --version "completion bash" "plan $inputs/quickstart.toml" "inspect run" "eval run" \
    "generate run --prompt line --tokens 4" "verify $inputs/quickstart.toml $(echo $small) data.synthetic=true --steps 1"; do
    expect 4 '^\[rank 0\] error: standard output: what the command printed could not be written(: No space left on device)?$' \
      sh -c "'$kozero' $command >/dev/full"
  done
  expect 0 '^\[run\]$' sh -c "'$kozero' keys --all | head -n 1"
}

# Control characters in paths and values cannot break a line or move the cursor.
escaped_lines() {
  local bad
  make_text
  bad=$(printf 'a\n\033[2Jb')
  cp "$inputs/quickstart.toml" "$bad.toml"
  expect 2 '^\[rank 0\] error: a\\n\\x1b\[2Jb.toml: run.dir = "runs/a\\u000a\\u001b\[2Jb": it holds a control character' \
    sh -c "sed -i '/^dir/d' '$bad.toml'; '$kozero' train '$bad.toml'"
  lines 1 ''
  expect 3 '^\[rank 0\] error: data.text: a\\n\\x1b\[2Jb: no such file' "$kozero" train "$inputs/quickstart.toml" "data.text=$bad"
  lines 1 ''
  expect 2 'unknown command "a\\n\\x1b\[2Jb"' "$kozero" "$bad"
  lines 1 ''
  expect 0 '^a\\n\\x1b\[2Jb.toml: [0-9]+ parameters' "$kozero" plan "$bad.toml" run.dir=run
  cp text/a.txt "$bad.txt"
  expect 75 'to go on: .* \$.data.text=a\\n\\x1b\[2Jb.txt. ' "$kozero" train "$inputs/quickstart.toml" "data.text=$bad.txt" \
    data.tokenizer=bytes run.dir=run run.max_minutes=1e-9 model.layers=1 model.dim=16 model.heads=2 model.seq=16
  expect 2 'run.dir = "a\\u000ab": it holds a control character' "$kozero" train "$inputs/quickstart.toml" 'run.dir="a\nb"'
  expect 2 'run.dir = "a\\u0000b": it holds a NUL character' timeout 20 "$kozero" train "$inputs/quickstart.toml" 'run.dir="a\u0000b"'
}

keys_of_decks() {
  expect 0 '^\[zero\]$' "$kozero" keys
  also '^  zero.stage +what is sharded'
  also '^ +0 \| 1 \| 2 \| 3 \(default: 0\)$'
  also '^These are [0-9]+ of [0-9]+ keys'
  lines 0 'comm.timeout_s'
  lines 0 '.{81}'
  expect 0 '^  comm.timeout_s ' "$kozero" keys --all
  expect 0 '^  zero.bucket_mib ' "$kozero" keys zero
  lines 0 '^  run'
  expect 0 '^  optim.lr ' "$kozero" keys learning_rate
  expect 0 '^  data.source\[\].repeat +times that an epoch has' "$kozero" keys data
  also '^ +integer 1 to 1000 \(default: 1\)$'
  expect 0 '^  zero.offload_mib ' "$kozero" keys offload
  expect 0 '^  train.precision ' sh -c "'$kozero' keys dtype | sed -n 2p"
  expect 0 '^  optim.decay_steps ' "$kozero" keys lr_decay_iters
  also '^note: nanoGPT.s lr_decay_iters counts from the first step, optim.decay_steps$'
  expect 0 '^note: no such key: KoZeRO has no just-in-time compiler$' "$kozero" keys compile
  lines 1 .
  expect 0 '"note":"use_zero1 = True is zero.stage = 1"}$' "$kozero" keys use_zero1 --json
  local word
  for word in out_dir eval_interval log_interval eval_iters eval_only always_save_checkpoint init_from wandb_log dataset \
      gradient_accumulation_steps batch_size block_size n_layer n_head n_embd dropout bias learning_rate max_iters \
      weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend device dtype compile use_zero1; do
    expect 0 "^(note: no such key|  [a-z]+\\.[a-z_]+ )" "$kozero" keys $word
  done
  expect 2 "keys: no key's name or text has \"zzz\"; accepted: a section .run, model, .*; --all lists all keys" "$kozero" keys zzz
  expect 0 '^{"keys":\[{"key":"run.dir","text":".*","accepted":"path of a folder","default":".*","first":true}' "$kozero" keys --json
}

run_case
