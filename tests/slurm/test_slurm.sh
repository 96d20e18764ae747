#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# test_slurm.sh KOZERO CASE: KoZeRO in jobs of a real Slurm on four hosts that are namespaces (cluster.sh), and the job
# scripts of inputs/slurm. Exit status 0: all as expected, 77: the case needs root, namespaces, Slurm or MPICH, which are
# not here. A job that is stopped, preempted or loses a node ends with the weights of a run without Slurm, bit for bit.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kozero=$(realpath "$1")
inputs=$(realpath "$here/../../inputs")

fail() {
  echo "FAILED: $*"
  tail -n 20 "$folder"/*.txt "$folder"/*.log 2>/dev/null
  exit 1
}

if [[ -z ${HOSTS_FOLDER:-} ]]; then
  "$here/../cluster/network_namespaces.sh" check || exit
  for program in slurmctld slurmd munged sbatch; do
    command -v $program >/dev/null || { echo "skipped: needs $program: cmake/install_packages.sh slurm"; exit 77; }
  done
  TMPDIR=$(mktemp -d)  # of all scripts below
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
  status=0
  timeout --kill-after=10 280 "$here/cluster.sh" "$here/test_slurm.sh" "$@" || status=$?
  left() { find "$TMPDIR" -mindepth 1; pgrep -f "$TMPDIR"; ip netns list | grep '^kz[0-9]'; }
  for _ in {1..50}; do
    [[ -n $(left) ]] || exit $status
    sleep 0.1
  done
  echo "FAILED: left afterwards: $(left | tr '\n' ' ')"
  exit 1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export KOZERO=$kozero KOZERO_INPUTS=$inputs OMP_NUM_THREADS=1
for line in {1..200}; do echo "line $line: the quick brown fox jumps over the lazy dog."; done >text
small=("$inputs/quickstart.toml" data.text=["$folder/text"] data.tokenizer=bytes model.layers=1 model.dim=16 model.heads=2
  model.seq=16 train.global_batch=4 train.micro_batch=2 train.eval_every=0 optim.warmup_steps=0 optim.schedule=constant
  run.steps=200 checkpoint.every=10 comm.backend=mpi log.every=10)
slow=comm.latency_us=5000  # of each message: a step takes some 50 ms; the bits stay

# expect STATUS TEXT COMMAND...: exit status and a regular expression in the output.
expect() {
  local want=$1 text=$2 status=0
  shift 2
  timeout 100 "$@" >out.txt 2>&1 </dev/null || status=$?
  [[ $status == "$want" ]] || fail "exit status $status, not $want: $*"
  grep -Eq -- "$text" out.txt || fail "no \"$text\" from $*"
}

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || fail "not so in time: $*; $(squeue --all --long; cat run/status.json)"
    sleep 0.1
  done
}

state() { sed -n 's/.*"state": *"\([a-z]*\)".*/\1/p' run/status.json 2>/dev/null; }
is_in_state() { [[ $(state) == "$1" ]]; }
has_step() { compgen -G 'run/step_?????????' >/dev/null; }
job_fact() { scontrol --oneliner show job "$1" | grep -o "$2=[^ ]*" | cut -d = -f 2; }
job_is() { [[ $(job_fact "$1" JobState) == "$2" ]]; }

# The final weights without Slurm, on one rank, to compare with.
weights_without_slurm() {
  "$kozero" train "${small[@]}" run.dir=alone run.ranks=1 >alone.txt 2>&1 || fail 'the run without Slurm'
}

# same_weights: of the finished run and the one without Slurm.
same_weights() {
  "$kozero" inspect --diff alone/weights.h5 run/weights.h5 >diff.txt 2>&1 || fail "the weights differ: $(cat diff.txt)"
}

# submit OPTION... : cpu_nodes.sh on two hosts; sets `job`.
submit() {
  job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 "$@" "$inputs/slurm/cpu_nodes.sh" run \
    "${small[@]}" $slow) || fail "sbatch $*"
  until_true 30 has_step
}

# run_job ARGUMENT...: sbatch ARGUMENT..., and the wait for the end of all jobs. (`sbatch --wait` looks every 10 s.)
run_job() {
  local id
  id=$(sbatch --parsable "$@") || fail "sbatch $*"
  until_true 100 no_jobs
  [[ $(job_fact "$id" ExitCode | sort --unique) == 0:0 ]] || fail "sbatch $*: $(job_fact "$id" ExitCode)"
}
no_jobs() { [[ -z $(squeue --noheader) ]]; }

# ends_with_restarts COUNT: the job is completed, was started again so often, and has the weights of a run without Slurm.
ends_with_restarts() {
  until_true 100 job_is "$job" COMPLETED
  is_in_state finished || fail "the run is $(state)"
  [[ $(job_fact "$job" Restarts) == "$1" ]] || fail "$(job_fact "$job" Restarts) restarts, not $1"
  same_weights
}

# ---- the cases --------------------------------------------------------------------------------------------------------

# Ranks by srun and by mpiexec in an allocation; a program that is started without PMI refuses, on each task.
launchers() {
  weights_without_slurm
  expect 0 'output in run:' srun --mpi=pmi2 --nodes=2 --ntasks=2 "$kozero" train "${small[@]}" run.dir=run
  same_weights
  rm -rf run
  printf '#!/bin/sh\nexec mpiexec -n 2 "$KOZERO" train "$@" run.dir=run\n' >mpiexec.sh
  run_job --nodes=2 --ntasks=2 --output=mpiexec.log mpiexec.sh "${small[@]}"
  same_weights
  grep -q '"host2"' run/ranks.json || fail 'mpiexec did not start a rank on the second host'
  rm -rf run
  expect 2 'SLURM_STEP_NUM_TASKS = 2, but MPI sees this process alone' srun --nodes=2 --ntasks=2 "$kozero" train \
    "${small[@]}" run.dir=run
  [[ $(grep -c 'error: SLURM_STEP_NUM_TASKS' out.txt) == 2 ]] || fail 'not one line per task'
  [[ ! -e run ]] || fail 'a task without PMI began a run'
}

# The scripts of inputs/slurm fit a cluster of this shape; five nodes do not.
scripts() {
  local script
  for script in cpu_node cpu_nodes gpu_nodes array; do
    expect 0 'to start at .* in partition main' sbatch --test-only "$inputs/slurm/$script.sh"
  done
  expect 0 'using 384 processors on nodes host\[1-4\]' sbatch --test-only "$inputs/slurm/gpu_nodes.sh"
  expect 1 'not available' sbatch --test-only --nodes=5 "$inputs/slurm/gpu_nodes.sh"
}

# A stop signal reaches the ranks; the run saves, ends with status 75, and the job requeues itself.
requeue() {
  weights_without_slurm
  submit
  scancel --signal=USR1 "$job"
  until_true 20 is_in_state preempted
  grep -q '"exit_status": *75' run/status.json || fail 'the status is not 75'
  ends_with_restarts 1
}

# The same by the time limit: Slurm sends the signal up to 30 s early.
time_limit() {
  small+=(run.steps=900)
  weights_without_slurm
  submit --time=1 --signal=TERM@25
  until_true 60 is_in_state preempted
  grep -q 'SIGTERM came' run/status.json || fail 'no SIGTERM'
  until_true 100 job_is "$job" COMPLETED
  (($(job_fact "$job" Restarts) >= 1)) || fail 'no restart'
  is_in_state finished || fail "the run is $(state)"
  same_weights
}

# A job of higher priority takes the nodes: SIGTERM, a save, and a requeue.
preemption() {
  weights_without_slurm
  submit
  expect 0 'host1' srun --partition=urgent --nodes=4 --exclusive hostname
  grep -q 'SIGTERM came' run/log.txt* || fail 'no SIGTERM'
  ends_with_restarts 1
}

# A rank is killed: its job requeues itself, since it has saved a checkpoint.
lost_rank() {
  local rank
  weights_without_slurm
  submit
  rank=$(pgrep --newest --full "^$kozero train .*$folder/text.* run.dir=run ") || fail "no rank"
  kill -KILL "$rank"
  ends_with_restarts 1
}

# A node is lost: Slurm requeues the job, which goes on with two others.
lost_node() {
  weights_without_slurm
  submit
  "$HOSTS_FOLDER/lose" 2
  ends_with_restarts 1
  [[ $(job_fact "$job" NodeList) != *2* ]] || fail 'the job ran on the lost node'
}

# A job that is cancelled saves and stays ended. A start that fails ends the job with its status, whatever an earlier run
# has left in the folder.
not_requeued() {
  submit
  scancel "$job"
  until_true 30 job_is "$job" CANCELLED
  is_in_state preempted || fail "the run is $(state)"
  cp run/status.json before.json
  sleep 7  # a requeued job waits 5 s
  cmp before.json run/status.json || fail 'the cancelled job began again'

  submit_failing() {
    job=$(sbatch --parsable --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 "$inputs/slurm/cpu_nodes.sh" "$@") || fail "sbatch $*"
    until_true 30 job_is "$job" FAILED
    [[ $(job_fact "$job" Restarts) == 0 ]] || fail "a start that failed was requeued"
  }
  KOZERO=/bin/false submit_failing run "${small[@]}"
  [[ $(job_fact "$job" ExitCode) == 1:0 ]] || fail "exit code $(job_fact "$job" ExitCode), not 1"
  grep -q "not requeued: no checkpoint was saved since the job's start (status 1)" "kozero-$job.log" || fail 'no reason'
  submit_failing run "${small[@]}" zero.stage=7
  [[ $(job_fact "$job" ExitCode) == 2:0 ]] || fail "exit code $(job_fact "$job" ExitCode), not 2"
  submit_failing
  grep -q 'the first argument is the folder of the run' "kozero-$job.log" || fail 'no usage'
  [[ -z $(compgen -G '.status.*') ]] || fail 'the file of the exit status is left'
}

# A job array: one case of a sweep per task, by the script of inputs/slurm and by the one that `sweep --array` prints.
array() {
  sed "s|^deck = .*|deck = \"$inputs/stages.toml\"|; s|^steps = .*|steps = 2|; s|^zero.stage = .*|zero.stage = [0, 3]|" \
    "$inputs/sweep_stages.toml" >matrix.toml
  local keys=(data.text=["$folder/text"] data.tokenizer=bytes model.layers=1 model.dim=16 model.heads=2 model.seq=16)
  run_job --array=1-4 --time=2 "$inputs/slurm/array.sh" matrix.toml "${keys[@]}" sweep.dir=by_script
  [[ $(grep -l '"state": "done"' by_script/cases/*/case.json | wc -l) == 4 ]] || fail 'the script: not 4 cases are done'
  expect 0 'srun --mpi=pmi2' "$kozero" sweep matrix.toml "${keys[@]}" sweep.dir=by_program --array
  cp out.txt sweep.sh
  run_job --time=2 sweep.sh
  [[ $(grep -l '"state": "done"' by_program/cases/*/case.json | wc -l) == 4 ]] || fail 'sweep --array: not 4 cases are done'
}

"$2"
