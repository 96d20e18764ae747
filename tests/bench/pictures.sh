#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# pictures.sh [PICTURE...]: makes the pictures of docs/pictures from runs of small models, in a few minutes on 2 cores.
#   exact        losses of 4 stages on 1, 2, 3, 4 and 7 ranks, and of a run that is killed and resumed; fails if a bit
#                differs
#   memory       memory per rank of each stage, by `kozero plan` and of the process
#   placements   the three placements of an array and the collectives between them; runs nothing
#   step         a step of stage 3 as `kozero bench step --json` records it
#   granules     a step's granules over ranks and micro-steps; runs nothing
#   layers       the folders, from tests/style/check_layers.py; runs nothing
# KOZERO: the program (default: build/release/kozero). KOZERO_PICTURES: where to write (default: docs/pictures).
# tests/bench/pictures.py draws.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kozero=$(realpath "${KOZERO:-$root/build/release/kozero}")
out=${KOZERO_PICTURES:-$root/docs/pictures}
all=(exact memory placements step granules layers)
pictures=("$@")
((${#pictures[@]} > 0)) || pictures=("${all[@]}")
for picture in "${pictures[@]}"; do
  [[ " ${all[*]} " == *" $picture "* ]] ||
    { echo "pictures.sh: no picture '$picture'; accepted: ${all[*]}" >&2; exit 2; }
done
read -r -a mpiexec <<<"$(sed -n 's/^KOZERO_MPIEXEC:INTERNAL=//p' "$(dirname "$kozero")/CMakeCache.txt" | tr ';' ' ')"
((${#mpiexec[@]} > 0)) || { echo "pictures.sh: no KOZERO_MPIEXEC in CMakeCache.txt beside $kozero" >&2; exit 2; }
cores=$(nproc)
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
deck=$root/inputs/quickstart.toml
small=("data.text=$root/LICENSE" data.tokenizer=bytes data.val_fraction=0 train.eval_every=0 log.every=1000)

# on RANKS ARGUMENT...
on() { "${mpiexec[@]}" -n "$1" "$kozero" "${@:2}" 2>>"$folder/errors" >>"$folder/output"; }

failed() { echo "pictures.sh: $*" >&2; tail -n 5 "$folder/errors" >&2; exit 1; }

run_exact() {
  local stage ranks run steps=160
  local keys=("${small[@]}" run.steps=$steps checkpoint.every=0 model.layers=2 model.dim=64 model.heads=4 model.seq=64
    train.global_batch=14 train.micro_batch=1 optim.warmup_steps=10 optim.lr=3e-3 optim.min_lr=1e-3)
  for stage in 0 1 2 3; do
    for ranks in 1 2 3 4 7; do
      run=$folder/stage$stage-ranks$ranks
      on "$ranks" train "$deck" "${keys[@]}" run.dir="$run" zero.stage=$stage ||
        failed "stage $stage on $ranks ranks failed"
    done
  done
  run_killed "$steps" "${keys[@]}"
  for run in "$folder"/stage* "$folder/killed"; do
    on 1 export "$run" "$run-exported" || failed "export of $run failed"
  done
}

# run_killed STEPS KEY...: a run on 4 ranks that is killed (SIGKILL), and resumed on 3 ranks in another stage.
run_killed() {
  local steps=$1 run=$folder/killed launcher at=0 from parameters
  shift
  set -- "$@" run.dir="$run" checkpoint.every=20
  "${mpiexec[@]}" -n 4 "$kozero" train "$deck" "$@" zero.stage=3 >>"$folder/output" 2>>"$folder/errors" &
  launcher=$!
  while ((at < steps / 2)) && kill -0 "$launcher" 2>/dev/null; do
    sleep 0.01
    [[ ! -e $run/metrics.jsonl ]] || at=$(wc -l <"$run/metrics.jsonl")
  done
  kill -KILL "$launcher" || failed "the run ended before it was killed"
  wait "$launcher" 2>/dev/null || true
  while [[ -n $(pgrep -f "run.dir=$run ") ]]; do sleep 0.1; done
  at=$(($(wc -l <"$run/metrics.jsonl") + 1))
  ((at < steps)) || failed "the run ended before it was killed"
  from=$(ls "$run" | sed -n 's/^step_0*\([0-9]*\)$/\1/p' | tail -n 1)
  on 3 train "$deck" "$@" zero.stage=1 checkpoint.resume=auto || failed "the killed run could not be resumed"
  parameters=$("$kozero" plan "$deck" "$@" --ranks 1 --json 2>/dev/null | sed 's/.*"parameters":\([0-9]*\).*/\1/')
  printf '{"at": %d, "ranks": 4, "stage": 3, "from": %d, "resumed_ranks": 3, "resumed_stage": 1, "parameters": %d}\n' \
    "$at" "$from" "$parameters" \
    >"$folder/killed.json"
}

run_memory() {
  local stage
  local keys=("${small[@]}" run.steps=2 checkpoint.every=0 model.layers=6 model.dim=384 model.heads=6 model.seq=64
    train.global_batch=4 train.micro_batch=1)
  "$kozero" plan "$deck" "${keys[@]}" --ranks 4 --json >"$folder/plan.json" 2>>"$folder/errors" || failed "plan failed"
  "$kozero" plan "$deck" "${keys[@]}" --ranks 4 2>>"$folder/errors" |
    sed -n 's/^beside the arrays: \([0-9]*\) MiB.*/\1/p' >"$folder/beside_mib"
  for stage in 0 1 2 3; do
    on 4 train "$deck" "${keys[@]}" run.dir="$folder/memory$stage" zero.stage=$stage || failed "stage $stage failed"
  done
}

# The fastest of five last steps is drawn.
run_step() {
  local run
  for run in 1 2 3 4 5; do
    "${mpiexec[@]}" -n 2 "$kozero" bench step "$deck" "${small[@]}" zero.stage=3 zero.bucket_mib=0 model.layers=4 \
      model.dim=256 model.heads=4 train.global_batch=4 train.micro_batch=2 --runs 3 --json 2>>"$folder/errors" |
      tail -n 1 >"$folder/step$run.json" || failed "bench step failed"
  done
}

mkdir -p "$out"
for picture in "${pictures[@]}"; do
  printf '%s, %s, %s cores, commit %s: tests/bench/pictures.sh %s\n' "$(date -u +%F)" \
    "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)" "$cores" \
    "$("$kozero" --version | sed -n 's/^commit *\([0-9a-f]\{7\}\)[0-9a-f]*/\1/p')" "$picture" >"$folder/conditions"
  case $picture in exact | memory | step) "run_$picture" ;; esac
  python3 "$here/pictures.py" "$picture" "$folder" "$out/$picture.svg"
  echo "$out/$picture.svg: $(wc -c <"$out/$picture.svg") bytes"
done
