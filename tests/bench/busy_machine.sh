#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# busy_machine.sh [--runs N] [--steps N]: tokens per second of a small GPT-2 (4 layers of 192 channels, f32, 4 sequences
# of 256 tokens) while another process, a busy loop, uses one core: not at all, on a core of the system's choice, or
# bound to the first core. Prints a table: program x threads x neighbor, medians of N runs taken in turn.
#   of free   the rate divided by the rate of the free share, which is the same program's quiet rate times
#             min(threads, cores - 1) / threads
# Programs: KoZeRO; KoZeRO with OMP_WAIT_POLICY=active, whose threads spin; 2 ranks of 1 thread; PyTorch eager and
# compiled if KOZERO_PEER_PYTHON names a python that has torch. KOZERO: the program (build/release/kozero by default).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=${KOZERO:-$here/../../build/release/kozero}
python=${KOZERO_PEER_PYTHON:-}
runs=3 steps=40
while (($# > 0)); do
  case $1 in
    --runs) runs=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    *) echo "busy_machine.sh: no option '$1'; accepted are --runs N, --steps N" >&2; exit 2 ;;
  esac
done
cores=$(nproc)
folder=$(mktemp -d)
neighbor=
quiet() { if [[ -n $neighbor ]]; then kill "$neighbor" 2>/dev/null || true; wait "$neighbor" 2>/dev/null || true; fi; neighbor=; }
trap 'quiet; rm -rf "$folder"' EXIT

# field NAME: the value of NAME in the JSON line on standard input.
field() { sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" | tail -n 1; }

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { printf "%.0f", value[int((NR + 1) / 2)] }'; }

# of_kozero RANKS THREADS: tokens per second.
of_kozero() {
  local launcher=()
  (($1 == 1)) || launcher=(mpiexec -n "$1")
  env -u OMP_NUM_THREADS "${launcher[@]}" "$kozero" train "$here/gpt2_124m_f32.toml" run.dir="$folder/run" \
    run.steps="$steps" run.threads="$2" model.preset=none model.arch=gpt2 model.layers=4 model.dim=192 model.heads=6 \
    model.vocab=256 train.micro_batch=$((4 / $1)) --json 2>&1 | tail -n 1 >"$folder/line"
  rm -rf "$folder/run"
  field tokens_per_s <"$folder/line"
}

of_torch() {
  OMP_NUM_THREADS=$1 "$python" "$here/torch_gpt.py" --steps "$((steps - 5))" --warmup 5 --threads "$1" --layers 4 --dim 192 \
    --heads 6 --vocab 256 --batch 4 --seq 256 "${@:2}" 2>/dev/null | tail -n 1 | field tokens_per_s
}

# run_program NAME THREADS
run_program() {
  case $1 in
    kozero) of_kozero 1 "$2" ;;
    kozero-active) OMP_WAIT_POLICY=active of_kozero 1 "$2" ;;
    kozero-2-ranks) of_kozero 2 "$2" ;;
    torch-eager) of_torch "$2" ;;
    torch-compiled) of_torch "$2" --compile ;;
  esac
}

start_neighbor() {
  case $1 in
    free) bash -c 'while :; do :; done' & neighbor=$! ;;
    bound) taskset -c 0 bash -c 'while :; do :; done' & neighbor=$! ;;
  esac
}

programs=("kozero 1" "kozero $cores" "kozero-active $cores" "kozero-2-ranks 1")
[[ -z $python ]] || programs+=("torch-eager $cores" "torch-compiled $cores")
for _ in $(seq "$runs"); do
  for busy in none free bound; do
    for program in "${programs[@]}"; do
      start_neighbor "$busy"
      # shellcheck disable=SC2086
      run_program $program >>"$folder/${program// /.}.$busy"
      quiet
    done
  done
done
printf '%-16s %7s  %-8s %9s %8s %8s\n' program threads neighbor tokens/s 'of quiet' 'of free'
for program in "${programs[@]}"; do
  read -r name threads <<<"$program"
  [[ $name == kozero-2-ranks ]] && used=2 || used=$threads
  for busy in none free bound; do
    awk -v name="$name" -v threads="$threads" -v busy="$busy" -v used="$used" -v cores="$cores" \
      -v rate="$(median "$folder/$name.$threads.$busy")" -v quiet="$(median "$folder/$name.$threads.none")" 'BEGIN {
        share = busy == "none" || used < cores ? 1 : (cores - 1) / used
        printf "%-16s %7d  %-8s %9.0f %8.2f %8.2f\n", name, threads, busy, rate, rate / quiet, rate / quiet / share }'
  done
done
