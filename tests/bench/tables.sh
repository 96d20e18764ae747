#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# tables.sh [TABLE...]: measures or plans the tables of figures in README.md and docs/ again. Each is printed in
# Markdown, below date, processor, commit and the commands that made it. tables.sh --list names them and what they need.
# KOZERO: the program (default: build/release/kozero). KOZERO_PEER_PYTHON: a python that has torch, for tables that need
# it, and transformers for `generation`, DeepSpeed for `peers` and `peer_memory`, and
# the wheels of tokenizers_speed.py for `tokenizers`.
# RUNS: repetitions in place of a table's own number.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
kozero=${KOZERO:-build/release/kozero}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Name, need and duration on 2 cores, subject. A need: none, peers (KOZERO_PEER_PYTHON), root, cuda (a build for GPUs).
tables() {
  cat <<'LIST'
peers              peers 15-min  KoZeRO beside PyTorch and DeepSpeed: one process, stages 1 and 3
peer_cases         peers 40-min  the other shapes and precisions beside PyTorch
peer_memory        peers 10-min  peak memory beside PyTorch and DeepSpeed
generation         peers 5-min   generating text beside transformers
saving             peers 3-min   saving beside torch.distributed.checkpoint
busy_machine       peers 10-min  a busy neighbor on one core
tokenizers         peers 5-min   byte-level BPE beside gigatoken and Hugging Face's tokenizers
kernels            none  5-min   share of the peak, in f32 and bf16
stages             none  2-min   the four stages side by side
collectives        none  2-min   back ends beside MPI's collectives on 2, 4 and 8 ranks
collective_sizes   none  1-min   collectives on 2 ranks by size
rings              none  5-min   ring and mpi beside MPI's collectives, 1 KiB to 256 MiB, on 2 and 4 ranks
buckets            none  15-min  a step with three values of zero.bucket_mib
networks           root  10-min  collectives between network namespaces
models             none  1-min   planned memory of models on 1 to 64 ranks
recompute          none  1-min   planned memory with train.recompute
recompute_time     none  5-min   a step with train.recompute
vocabulary         none  1-min   planned memory with model.vocab_block
disk               root  5-min   GPT-2 1.5B with its state on a disk
precision          none  15-min  validation losses of the quick start in three precisions
faults             none  20-min  killed and stopped ranks, signals, double starts
cudnn              cuda  1-min   shapes that cuDNN's attention accepts
LIST
}

# show COMMAND...: runs it, and prints it above the table.
show() {
  local word line=
  for word in "$@"; do line+=" $(printf '%q' "$word" | sed 's/\\,/,/g; s/\\=/=/g; s/\\\[/[/g; s/\\\]/]/g')"; done
  printf '    %s\n' "${line# }" >>"$folder/commands"
  "$@" 2>>"$folder/errors"
}

# on RANKS ARGUMENT...: a command of kozero on so many ranks of one thread each.
on() {
  local ranks=$1 mpiexec
  read -r -a mpiexec <<<"$(sed -n 's/^KOZERO_MPIEXEC:INTERNAL=//p' "$(dirname "$kozero")/CMakeCache.txt" | tr ';' ' ')"
  OMP_NUM_THREADS=1 OMP_PROC_BIND=false show "${mpiexec[@]}" -n "$ranks" "$kozero" "${@:2}"
}

# header NAME...: the first two lines of a table.
header() {
  printf '|'; printf ' %s |' "$@"; echo
  printf '|'; printf ' --- |%.0s' "$@"; echo
}

# cells EXPRESSION: a row for each list in the value of a Python expression of `it`, the JSON object on standard input.
cells() {
  tail -n 1 | python3 -c 'import json, sys
it = json.load(sys.stdin)
for row in eval(sys.argv[1]):
    print("| " + " | ".join((f"{v:,.0f}" if v >= 1000 else f"{v:.4g}") if isinstance(v, float) else str(v) for v in row) + " |")' "$1"
}

# lines: standard input as a block of Markdown.
lines() { sed 's/^/    /'; }

gpt2=tests/bench/gpt2_124m_f32.toml

peers() {
  show tests/bench/peers.sh --precision bf16 --runs "${RUNS:-3}" --steps 5 deepspeed-4x256 stage3-4x256 gpt2-4x256 | medians
}

peer_cases() {
  for shape in gpt2-4x256 gpt2-1x1024 llama-4x256 stage3-4x256 stage1-4x256; do
    show tests/bench/peers.sh --precision bf16 --runs "${RUNS:-3}" "$shape" | medians
  done
  show tests/bench/peers.sh --runs "${RUNS:-3}" gpt2-4x256 | medians
}

peer_memory() {
  show tests/bench/peers.sh --precision bf16 --runs "${RUNS:-1}" stage1-4x256 stage3-4x256 deepspeed-4x256 | medians
}

# medians: the end of what peers.sh prints, as rows.
medians() {
  sed '1,/^all medians of/d' | awk '
    / cores; / { print; print ""; print "| case | KoZeRO, tokens/s | peer | peak MiB of a process: KoZeRO; peer |"
                 print "| --- | --- | --- | --- |" }
    /:$/ { shape = substr($0, 1, length($0) - 1) }
    /^  medians: KoZeRO/ {
      gsub(",|:", "")
      printf "| %s | %s | %s %s | %s; %s |\n", shape, $3, $4, $5, $(NF - 5), $(NF - 3)
    }'
}

generation() { show tests/bench/generation.sh --runs "${RUNS:-3}" | grep '^medians' | lines; }
saving() { show tests/bench/peer_checkpoint.sh "${RUNS:-3}" | grep '^medians' | lines; }
tokenizers() { show "$KOZERO_PEER_PYTHON" tests/bench/tokenizers_speed.py "$kozero" "${RUNS:-3}"; }
busy_machine() { show tests/bench/busy_machine.sh --runs "${RUNS:-2}" --steps 60 | lines; }

kernels() {
  header precision "step's share of the peak"
  for precision in f32 bf16; do
    show "$kozero" bench kernels $gpt2 run.threads=2 train.precision=$precision --runs "${RUNS:-7}" |
      sed -n "s/^step share = .* = \([0-9.]* %\).*/| $precision | \1 |/p"
  done
}

stages() {
  header stage 'step ms' tokens/s 'memory MiB' 'sent MiB' 'exposed ms' 'waiting ms' 'moving ms' 'bits equal'
  on 2 bench stages $gpt2 train.precision=bf16 train.micro_batch=2 run.threads=1 --steps 3 --runs "${RUNS:-3}" --json |
    cells '[[s["stage"], 1e3 * s["step_s"], s["tokens_per_s"], s["memory_bytes"] / 2**20, s["bytes_sent"] / 2**20,
             1e3 * s["exposed_s"], 1e3 * s["waited_s"], 1e3 * s["moved_s"], s["bits_equal"]] for s in it["stages"]]'
}

collectives() {
  header ranks collective 'back end' algorithm MiB 'times as fast as MPI'
  for ranks in 2 4 8; do
    on $ranks bench collectives --size 1MiB,16MiB,64MiB --runs "${RUNS:-7}" --json |
      cells '[[c["ranks"], c["experiment_name"], c["backend"], c["algorithm"], c["size"] / 2**20, c["over_mpi"]]
              for c in it["results"]]'
  done
}

collective_sizes() {
  header collective 'back end' algorithm MiB ms
  on 2 bench collectives --size 64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,147MiB --runs "${RUNS:-31}" --json |
    cells '[[c["experiment_name"], c["backend"], c["algorithm"], c["size"] / 2**20,
             1e-3 * (c["out_of_place"] or c["in_place"])["time"]] for c in it["results"]]'
}

rings() {
  local ranks
  header ranks collective 'back end' algorithm KiB us p99 busbw '#wrong'
  for ranks in 2 4; do
    on $ranks bench collectives --minbytes 1KiB --maxbytes 256MiB --stepfactor 8 --backend mpi,ring \
      --runs "${RUNS:-15}" --json |
      cells '[[c["ranks"], c["experiment_name"], c["backend"], c["algorithm"], c["size"] / 2**10, r["time"], i["p99_us"],
               r["bus_bw"], r["nwrong"]] for c in it["results"] for r in [c["out_of_place"] or c["in_place"]]
              for i in [c.get("out_of_place_per_iter") or c["in_place_per_iter"]]]'
  done
}

buckets() {
  header model 'stage, back end' zero.bucket_mib 'ms per step'
  local keys shape stage backend bucket
  for shape in 'model.layers=24 model.dim=128 model.seq=64' 'model.layers=4 model.dim=192 model.seq=256'; do
    for stage in 2 3; do
      for backend in shm mpi; do
        for bucket in 0 4 16; do
          read -r -a keys <<<"$shape"
          on 2 bench step inputs/demos/synthetic.toml model.arch=gpt2 model.vocab=256 train.global_batch=4 \
            train.micro_batch=1 zero.stage=$stage comm.backend=$backend zero.bucket_mib=$bucket "${keys[@]}" \
            --runs $((35 * ${RUNS:-1})) --json | cells "[['$shape', '$stage, $backend', $bucket, 1e3 * it['step_s']]]"
        done
      done
    done
  done
}

networks() {
  local hosts ranks
  for hosts in 2 4; do
    for ranks in 1 2; do
      show tests/cluster/network_namespaces.sh $hosts $ranks 1000 "$kozero" bench collectives --size 16MiB | lines
    done
  done
}

# plan OVERRIDE...: the JSON of a plan of GPT-2 124M.
plan() { show "$kozero" plan $gpt2 "$@" --json; }

models() {
  header model ranks 'stage 0' 'stage 1' 'stage 2' 'stage 3'
  local gib='" / ".join(f"{b / 2**30:.1f}" for b in (s["formula"], s["total"]))' name keys
  while IFS=: read -r name keys; do
    for ranks in 1 4 8 64; do
      # shellcheck disable=SC2086
      plan $keys --ranks $ranks train.precision=bf16 train.recompute=full comm.backend=mpi model.seq=1024 \
        train.micro_batch=1 train.global_batch=$ranks --rates 1,1,1 | cells "[['$name', $ranks] + [$gib for s in it['stages']]]"
    done
  done <<'LIST'
GPT-2 124M:model.vocab=50257
GPT-2 1.5B:model.preset=gpt2-1558m
6B:model.preset=none model.layers=28 model.dim=4096 model.heads=16 model.vocab=50257
Llama 8B:model.preset=llama-8b
Llama 13B:model.preset=llama-13b
20B:model.preset=none model.layers=44 model.dim=6144 model.heads=64 model.vocab=50257
LIST
}

recompute() {
  header train.recompute activations 'total, stage 0' 'stage 1' 'stage 2' 'stage 3'
  for level in none selective full 4; do
    plan --ranks 8 model.vocab=50257 model.seq=1024 train.micro_batch=4 train.global_batch=32 train.precision=bf16 train.recompute=$level \
      --rates 1,1,1 | cells "[['$level', round(s[0]['activations'] / 2**20)] + [round(x['total'] / 2**20) for x in s]
      for s in [it['stages']]]"
  done
}

recompute_time() {
  header tokens train.recompute 'ms per step'
  local keys shape level
  for shape in 'f32 4 4 256' 'bf16 2 2 1024'; do
    read -r -a keys <<<"$shape"
    for level in none selective full; do
      show "$kozero" bench step $gpt2 run.threads=2 train.recompute=$level train.precision="${keys[0]}" \
        train.global_batch="${keys[1]}" train.micro_batch="${keys[2]}" model.seq="${keys[3]}" --runs "${RUNS:-5}" --json |
        cells "[['${keys[2]} x ${keys[3]}, ${keys[0]}', '$level', 1e3 * it['step_s']]]"
    done
  done
}

vocabulary() {
  header model.vocab_block 'gathered, stage 3' workspace 'total, stage 2' 'stage 3' 'MiB sent per step, stage 3'
  for block in 0 8192 4096 2048; do
    plan --ranks 8 model.vocab=50257 train.global_batch=8 train.micro_batch=1 model.vocab_block=$block --rates 1,1,1 | cells "[[$block, round(s[3]['gathered'] / 2**20),
      s[3]['workspace'] / 2**20, round(s[2]['total'] / 2**20), round(s[3]['total'] / 2**20), round(s[3]['sent'] / 2**20)]
      for s in [it['stages']]]"
  done
}

# In a control group of 12 GiB, as the page describes it.
disk() {
  on 2 train $gpt2 model.preset=gpt2-1558m zero.stage=3 train.precision=bf16 train.recompute=full \
    zero.offload_optimizer=disk zero.offload_parameters=disk train.micro_batch=1 train.global_batch=2 checkpoint.every=0 \
    train.eval_every=0 run.steps="${RUNS:-3}" run.dir="$folder/disk" | grep -E '^memory|^step ' | lines
}

precision() {
  header precision 'validation loss'
  for kind in f32 bf16 fp16; do
    on 2 train inputs/quickstart.toml run.steps=300 train.precision=$kind run.dir="$folder/$kind" |
      sed -n "s/^validation *loss \([0-9.]*\),.*/| $kind | \1 |/p"
  done
}

faults() { show cmake --build build/release --target fault_study | lines; }
cudnn() { show ./kozero.sh --preset cuda test -R cudnn_graphs -V | lines; }

if [[ ${1-} == --list ]]; then tables; exit; fi
read -r -d '' -a all <<<"$(tables | cut -d ' ' -f 1)" || true
wanted=("$@")
((${#wanted[@]} > 0)) || wanted=("${all[@]}")
for table in "${wanted[@]}"; do
  [[ " ${all[*]} " == *" $table "* ]] || { echo "tables.sh: no table '$table'; accepted: ${all[*]}" >&2; exit 2; }
done
for table in "${wanted[@]}"; do
  read -r _ need _ <<<"$(tables | grep "^$table ")"
  echo "## $table"
  if [[ $need == peers && -z ${KOZERO_PEER_PYTHON:-} ]]; then
    echo "left out: set KOZERO_PEER_PYTHON to a python that has torch"; continue
  elif [[ $need == root && $EUID != 0 ]]; then
    echo "left out: run this as root"; continue
  elif [[ $need == cuda && ! -x build/cuda/kozero-cuda ]]; then
    echo "left out: needs ./kozero.sh --preset cuda build"; continue
  fi
  : >"$folder/commands"
  : >"$folder/errors"
  if ! "$table" >"$folder/rows"; then
    echo "tables.sh: $table failed:" >&2
    tail -n 5 "$folder/errors" >&2
    exit 1
  fi
  printf '%s, %s, %s cores, commit %s\n\n' "$(date -u +%F)" "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)" "$(nproc)" \
    "$("$kozero" --version | sed -n 's/^commit *//p')"
  cat "$folder/commands"
  echo
  cat "$folder/rows"
  echo
done
