#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peers.sh [--runs N] [--steps N] [--precision f32|bf16] [CASE...]: KoZeRO and PyTorch on the same cores, interleaved.
# Prints date, processor, commit, versions and threads, each run's tokens per second, then medians, their ratios and
# peak memory per process.
#   gpt2-4x256, gpt2-1x1024, llama-4x256    one process with 2 threads; PyTorch eager and compiled
#   stage1-4x256, stage3-4x256              2 ranks with 1 thread each, the same 4 sequences; DDP and ZeroRedundancyOptimizer,
#                                           and FSDP2, over gloo
#   deepspeed-4x256                         the same; DeepSpeed's ZeRO 1 and 3, which that python then needs too; only run if
#                                           named
# GPT-2 124M's shape; llama: 12 layers of 768 channels, 12 heads, 4 key/value heads.
# KOZERO_PEER_PYTHON names a python that has torch; KOZERO_PEERS a folder with another torch_gpt.py than the one beside
# this script; KOZERO the program (default: build/release/kozero). Its ranks are started by the mpiexec that its build
# found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
python=${KOZERO_PEER_PYTHON:?names no python: give one that has torch}
peer=${KOZERO_PEERS:-$here}/torch_gpt.py
read -r -a mpiexec <<<"$(sed -n 's/^KOZERO_MPIEXEC:INTERNAL=//p' "$(dirname "$kozero")/CMakeCache.txt" | tr ';' ' ')"
((${#mpiexec[@]} > 0)) || { echo "peers.sh: no KOZERO_MPIEXEC in CMakeCache.txt beside $kozero; set KOZERO to a build's program" >&2; exit 2; }
runs=5 steps=6 precision=f32
while (($# > 0)); do
  case $1 in
    --runs) runs=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --precision) precision=$2; shift 2 ;;
    *) break ;;
  esac
done
cases=("$@")
((${#cases[@]} > 0)) || cases=(gpt2-4x256 gpt2-1x1024 llama-4x256 stage1-4x256 stage3-4x256)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# field NAME: the value of NAME in the JSON line on standard input.
field() { sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" | tail -n 1; }

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

# of_kozero RANKS OVERRIDE...: tokens per second, and the peak MiB of a rank.
of_kozero() {
  local ranks=$1 launcher=()
  shift
  ((ranks == 1)) || launcher=("${mpiexec[@]}" -n "$ranks")
  OMP_NUM_THREADS=$((2 / ranks)) "${launcher[@]}" "$kozero" train "$here/gpt2_124m_f32.toml" run.dir="$folder/run" \
    run.steps="$steps" run.threads=$((2 / ranks)) train.precision="$precision" "$@" --json 2>&1 | tail -n 1 >"$folder/line"
  rm -rf "$folder/run"
  printf '%.1f %d\n' "$(field tokens_per_s <"$folder/line")" $(($(field peak_memory <"$folder/line") >> 20))
}

# of_torch RANKS ARGUMENT...: the same for the peer. A run that fails is repeated up to twice, since gloo sometimes
# aborts.
of_torch() {
  local ranks=$1 launcher=("$python") attempt
  shift
  ((ranks == 1)) || launcher=("$python" -m torch.distributed.run --nproc-per-node "$ranks")
  for attempt in 1 2 3; do
    if OMP_NUM_THREADS=$((2 / ranks)) "${launcher[@]}" "$peer" --steps "$((steps - 2))" --warmup 2 --threads $((2 / ranks)) \
      --dtype "$precision" "$@" 2>"$folder/errors" | tail -n 1 >"$folder/line"; then
      echo "$(field tokens_per_s <"$folder/line") $(field peak_rss_mib <"$folder/line")"
      return
    fi
    { echo "peers.sh: the peer failed, run $attempt of 3 ($*); the end of its output:"; tail -n 5 "$folder/errors"; } >&2
  done
  exit 1
}

# once NAME COMMAND...: one run, recorded under NAME.
once() {
  local name=$1
  shift
  "$@" >"$folder/result"
  cut -d' ' -f1 "$folder/result" >>"$folder/$name.speed"
  cut -d' ' -f2 "$folder/result" >>"$folder/$name.memory"
  printf '  %-24s %9s tokens/s %7s MiB\n' "$name" $(cat "$folder/result")
}

# compare NAME...: the first name beside each of the others.
compare() {
  local ours=$1 theirs
  shift
  for theirs in "$@"; do
    awk -v ours="$(median "$folder/$ours.speed")" -v theirs="$(median "$folder/$theirs.speed")" -v name="$theirs" \
      -v our_memory="$(median "$folder/$ours.memory")" -v their_memory="$(median "$folder/$theirs.memory")" 'BEGIN {
        printf "  medians: KoZeRO %.1f, %s %.1f tokens/s: %.2f times as fast; peak %d and %d MiB per process\n", ours, name, theirs,
               ours / theirs, our_memory, their_memory }' | tee -a "$folder/summary"
  done
}

# one_process BATCH SEQ ARCH OVERRIDE...
one_process() {
  local batch=$1 seq=$2 arch=$3
  shift 3
  local shape=(--arch "$arch" --batch "$batch" --seq "$seq")
  [[ $arch == gpt2 ]] || shape+=(--kv-heads 4)
  for _ in $(seq "$runs"); do
    once kozero of_kozero 1 train.global_batch="$batch" train.micro_batch="$batch" model.seq="$seq" "$@"
    once torch-eager of_torch 1 "${shape[@]}"
    once torch-compiled of_torch 1 "${shape[@]}" --compile
  done
  compare kozero torch-eager torch-compiled
}

# two_ranks MODE:STAGE...: 4 sequences of 256 tokens over both ranks, each mode beside KoZeRO's stage. The peer's batch
# is per rank.
two_ranks() {
  local pair stage stages
  stages=$(printf '%s\n' "${@#*:}" | sort -u)
  for _ in $(seq "$runs"); do
    for stage in $stages; do
      once "kozero-stage$stage" of_kozero 2 zero.stage="$stage" train.global_batch=4 train.micro_batch=2
      for pair in "$@"; do
        [[ ${pair#*:} != "$stage" ]] || once "torch-${pair%:*}" of_torch 2 --mode "${pair%:*}" --batch 2 --seq 256
      done
    done
  done
  for pair in "$@"; do compare "kozero-stage${pair#*:}" "torch-${pair%:*}"; done
}

# conditions: the conditions of the measurement, in one line.
conditions() {
  printf '%s, %s, %s cores; %s; %s; 1 process with 2 threads, or 2 ranks with 1 thread each, the peer over gloo\n' \
    "$(date -u +%F)" "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)" "$(nproc)" \
    "$("$kozero" --version | head -n 2 | tr -s ' \n' ' ')" \
    "$("$python" -c 'import importlib.metadata as m
print(", ".join(f"{d.name} {d.version}" for d in m.distributions() if d.name.lower() in ("torch", "deepspeed")))')"
}

conditions | tee "$folder/summary"
for case in "${cases[@]}"; do
  echo "$case, $precision:" | tee -a "$folder/summary"
  rm -f "$folder"/*.speed "$folder"/*.memory
  case $case in
    gpt2-4x256) one_process 4 256 gpt2 ;;
    gpt2-1x1024) one_process 1 1024 gpt2 ;;
    llama-4x256) one_process 4 256 llama model.preset=none model.arch=llama model.layers=12 model.dim=768 model.heads=12 \
      model.kv_heads=4 model.tie_embeddings=true ;;
    stage1-4x256) two_ranks ddp:1 zero1:1 ;;
    stage3-4x256) two_ranks fsdp2:3 ;;
    deepspeed-4x256) two_ranks deepspeed1:1 deepspeed3:3 ;;
    *) echo "peers.sh: no case '$case'; accepted are gpt2-4x256, gpt2-1x1024, llama-4x256, stage1-4x256, stage3-4x256," \
      "deepspeed-4x256" >&2; exit 2 ;;
  esac
done
echo "all medians of $runs runs:"
cat "$folder/summary"
