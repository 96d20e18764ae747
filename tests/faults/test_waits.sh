#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# test_waits.sh KOZERO MPIEXEC INPUTS CASE PRELOAD: ranks that stop, die, hang or are only slow, in every phase: the
# other ranks end with one line that names them, or wait. PRELOAD is the library of crash/failing_calls.cpp. Exit status
# 0: all as expected, 77: the case cannot run here.
. "$(dirname "$0")/../commands/cli_case.sh"
preload=$5
here=$PWD
deck=$inputs/quickstart.toml
timeout_s=4
make_text
trap 'end_ranks; rm -rf "$folder"' EXIT

# Each rank leaves its process id in pid.RANK; rank 1 of a run with `stopped=1` is stopped before it is the program.
cat >rank.sh <<'EOF'
#!/bin/sh
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}
echo $$ >"$PID_FOLDER/pid.$rank"
[ "$rank" = "${STOPPED_RANK:-none}" ] && kill -STOP $$
[ -z "${LAUNCHER_SLEEPS-}" ] && exec "$@"
"$@" &
echo $! >"$PID_FOLDER/pid.$rank"
wait $!
status=$?
[ $status = 137 ] && sleep 100  # so that the launcher does not see the kill
exit $status
EOF
chmod +x rank.sh
export PID_FOLDER=$here

pid_of() { cat "pid.$1" 2>/dev/null; }

# Only ranks of this script: another process may have the process id by now.
end_ranks() {
  for file in "$here"/pid.*; do
    [ -s "$file" ] && grep -q "$here" "/proc/$(cat "$file")/environ" 2>/dev/null && kill -KILL "$(cat "$file")"
  done
}

small="run.dir=run run.steps=10 model.layers=2 model.dim=16 model.heads=2 model.seq=16 train.global_batch=4 train.micro_batch=2
       train.eval_every=0 optim.warmup_steps=2 log.every=1 comm.timeout_s=$timeout_s"

# train OVERRIDES...: two ranks, in the foreground. A job that hangs is ended after `limit` seconds, with status 124.
train() {
  # shellcheck disable=SC2086  # words of the variables
  timeout -k 5 "${limit:-120}" $mpiexec -n "${ranks:-2}" ./rank.sh "$kozero" train "$deck" $small 'data.text=["text"]' \
    "$@" 2>&1 | tee train.log
  local status=${PIPESTATUS[0]}
  end_ranks
  # The kernel sends SIGHUP to a stopped rank whose launcher ends, and mpiexec may report that (1) for rank 0's status.
  [ "$status" = 1 ] && grep -q 'EXIT STRING: Hangup' train.log && status=5
  return $status
}

# preloaded OVERRIDES...: with the library that stops ranks and delays calls, controlled by variables KOZERO_...
preloaded() {
  # mpiexec itself must not load the library.
  (mpiexec="$mpiexec -genv LD_PRELOAD $preload" && train "$@")
}

# wait_for PATTERN: waits until the run in the background has printed it.
wait_for() {
  for _ in $(seq 1 600); do
    grep -Eqs -- "$1" log && return 0
    sleep 0.1
  done
  echo "FAILED: the run never said /$1/:"
  sed 's/^/    /' log
  failures=$((failures + 1))
  return 1
}

# A job whose ranks are all suspended for longer than the timeout continues.
suspended_ranks_go_on() {
  for backend in shm mpi ring; do
    rm -rf run pid.* log
    KOZERO_CALLS_UNDER=run/metrics.jsonl KOZERO_CALLS_RANK=0 KOZERO_CALLS_AT=100 KOZERO_CALLS_DO="sleep 1" \
      preloaded comm.backend=$backend run.steps=3000 comm.timeout_s=3 >log 2>&1 &
    local job=$!
    wait_for '^step +50' || return
    kill -STOP "$(pid_of 0)" "$(pid_of 1)"
    sleep 8
    kill -CONT "$(pid_of 0)" "$(pid_of 1)"
    wait $job
    local status=$?
    if [ $status != 0 ] || ! grep -q 'output in run' log; then
      echo "FAILED: with $backend, suspended for 8 s at a timeout of 3 s, the run ended in $status:"
      tail -5 log | sed 's/^/    /'
      failures=$((failures + 1))
    fi
  done
}

# The one line, from a rank that waited for rank 1 of this host.
lost='^\[rank 0\] error: .*rank 0 waited [0-9.]+ s in [A-Za-z_]+ for rank 1 on .* \(process [0-9]+\)'

# One rank stops at each of the first agreements: start-up, plan, folder, banner.
a_rank_stops_at_start_up() {
  STOPPED_RANK=1 expect 5 '^\[rank 0\] error: rank 0 waited [0-9.]+ s in MPI_Init_thread for rank 1 \(process [0-9]+ of this node, which is stopped\): it is lost' train
  for gather in 1 2 4 8; do
    rm -rf run
    KOZERO_STOP_AT=$gather KOZERO_CALLS_RANK=1 expect 5 "$lost" preloaded
    also 'no sign of life for [0-9.]+ s: it is lost, or comm.timeout_s is too short'
    also '^\[rank 0\]   rank 1 on .*: (start-up, |not heard of since it started)'  # stopped before its first heartbeat
    also '^\[rank 0\]   newest collectives here: '
  done
}

# A rank that fails to start after MPI_Init ends the job at once, not after comm.timeout_s.
a_rank_fails_at_start_up() {
  KOZERO_MPI_FAILS=MPI_Comm_split_type KOZERO_CALLS_RANK=1 limit=20 \
    expect 5 '^\[rank 1\] error: .*MPI_Comm_split_type' preloaded comm.timeout_s=60
  lines 1 '\] error: '
}

# at_calls_of_a_save ACTION PATTERN: rank 1 does ACTION at two calls of an asynchronous save, on three back ends; rank
# 0's error fits PATTERN.
at_calls_of_a_save() {
  for backend in shm mpi ring; do
    for call in 2 5; do
      rm -rf run
      KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=$call KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO=$1 \
        expect 5 "^\[rank 0\] error: .*$2" told_by preloaded comm.backend=$backend checkpoint.every=3 run.steps=300
    done
  done
}

# told_by COMMAND...: ends with the status that the run tells kozero.sh. If the MPI library aborts too when it meets the
# killed rank, the launcher's may be that of the signal.
told_by() {
  : >told
  KOZERO_STATUS_FILE=$PWD/told "$@"
  return "$(cat told)"
}

# Within a save, in the steps' agreement on whether the save has ended.
a_rank_stops_in_a_save() {
  at_calls_of_a_save stop 'rank 0 waited [0-9.]+ s in [a-z_ ]+ for rank 1'
}

# After the last step, and inside MPI_Finalize, where only the watchdog runs.
a_rank_stops_at_the_end() {
  KOZERO_STOP_AT=MPI_Finalize KOZERO_CALLS_RANK=1 \
    expect 5 '^\[rank 0\] error: rank 0 waited [0-9.]+ s in MPI_[A-Z][a-z_]+ for (another rank|rank 1 \(process [0-9]+ of this node, which is stopped\))' preloaded
  rm -rf run
  KOZERO_CALLS_UNDER=run/weights.h5 KOZERO_CALLS_AT=2 KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO=stop \
    expect 5 "$lost" preloaded
  also 'saving weights'
}

# MPICH on UCX over TCP ends only if the ranks enter MPI_Finalize in the right order (src/distributed/environment.cpp).
ranks_end_over_tcp() {
  for _ in 1 2 3 4 5 6; do
    rm -rf run
    UCX_TLS=tcp,self expect 0 'output in run' train
  done
}

# kill -9 under a launcher that does not notice it: ranks of the same host see the death, or else the ranks that wait
# for the dead rank. UCX may abort a process that communicates with a dead one; that is reported too.
a_rank_is_killed_and_the_launcher_does_nothing() {
  export LAUNCHER_SLEEPS=yes
  at_calls_of_a_save kill \
    '(rank 0 waited [0-9.]+ s in [a-z_ ]+ for rank 1|ended by SIGABRT in a wait for another rank|rank 1 on host .* ended without a word)'
}

# After a rank's death a launcher ends the other ranks with a signal that is also a stop signal: nothing is saved.
a_stop_signal_after_a_death_saves_nothing() {
  export LAUNCHER_SLEEPS=yes
  for backend in shm mpi ring; do
    rm -rf run pid.* log
    train comm.backend=$backend run.steps=100000 checkpoint.every=50000 >log 2>&1 &
    local job=$!
    wait_for '^step +50' || return
    kill -KILL "$(pid_of 1)"
    kill -TERM "$(pid_of 0)"
    wait $job
    local status=$?
    if [ $status = 0 ] || [ $status = 75 ] || ls -d run/step_* 2>/dev/null || ! grep -q '^\[rank 0\] error: ' log; then
      echo "FAILED: with $backend, a stop signal after rank 1 died: status $status"
      tail -5 log | sed 's/^/    /'
      failures=$((failures + 1))
    fi
  done
}

# Rank 0 works for longer than the timeout: on the data, then on a disk that is slow, then on the last weights.
slow_work_is_not_loss() {
  KOZERO_CALLS_UNDER=.tokens/ KOZERO_CALLS_AT=3 KOZERO_CALLS_RANK=0 KOZERO_CALLS_DO="sleep 10" \
    expect 0 'output in run' preloaded
  for rank in 0 1; do
    rm -rf run
    KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=4 KOZERO_CALLS_RANK=$rank KOZERO_CALLS_DO="sleep 12" \
      expect 0 'output in run' preloaded checkpoint.every=5
    lines 2 '^checkpoint +run/step_'
    rm -rf run
    KOZERO_CALLS_UNDER=run/weights.h5 KOZERO_CALLS_AT=2 KOZERO_CALLS_RANK=$rank KOZERO_CALLS_DO="sleep 12" \
      expect 0 'output in run' preloaded
  done
  rm -rf run
  KOZERO_MPI_FUNNELED=all KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=4 KOZERO_CALLS_RANK=0 KOZERO_CALLS_DO="sleep 12" \
    expect 0 'saving is synchronous' preloaded checkpoint.every=5
}

# A disk that hangs forever is a failed write, and its rank is named; with on_error = "continue" training continues.
a_hanging_disk_is_a_failed_write() {
  KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=3 KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO="sleep 600" \
    expect 4 '^\[rank 0\] error: the checkpoint of step 3 is not written after 2 s of waiting .*on rank 1: the disk of run' \
    preloaded checkpoint.every=3 checkpoint.io_timeout_s=2
  lines 1 '\] error: '
  rm -rf run
  KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=3 KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO="sleep 8" \
    expect 0 'output in run' preloaded checkpoint.every=3 checkpoint.io_timeout_s=5 \
    checkpoint.on_error=continue run.steps=9
  also '^warning +the checkpoint of step 3 is not written after 5 s of waiting .*on rank 1.*training goes on'
  lines 1 '^checkpoint +run/step_000000003: '
  lines 1 '^checkpoint +run/step_000000009: '
  rm -rf run
  KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=3 KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO="sleep 600" \
    expect 4 'the checkpoint of step 3 is not written' \
    preloaded checkpoint.every=3 checkpoint.io_timeout_s=2 checkpoint.on_error=continue
  also '^warning +the checkpoint of step 3 is not written after 2 s of waiting .*training goes on'
  also '^step +10/10'
  for on_error in stop continue; do  # training cannot continue during a save on its own thread
    rm -rf run
    KOZERO_CALLS_UNDER=run/step_ KOZERO_CALLS_AT=3 KOZERO_CALLS_RANK=1 KOZERO_CALLS_DO="sleep 600" \
      expect 4 '^\[rank 0\] error: the checkpoint of step 3: rank 0 waited [0-9.]+ s .checkpoint.io_timeout_s. for rank 1 on .* to write: its disk' \
      preloaded checkpoint.every=3 checkpoint.io_timeout_s=2 checkpoint.async=false checkpoint.on_error=$on_error
  done
}

# tokens_of RUN: the entry of the token cache in the run's banner.
tokens_of() { grep -Eo '\.tokens/[0-9a-f]{16}' "$1/log.txt" | head -n 1; }

# losses_of RUN: the losses, which are equal for two runs that read the same tokens.
losses_of() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }

# alone OVERRIDES...: a run of one rank; several may run at once.
alone() {
  # shellcheck disable=SC2086  # words of the variables
  $mpiexec -n 1 "$kozero" train "$deck" $small 'data.text=["text"]' "$@"
}

# Runs started together share the tokens that one of them makes; runs on other texts do not disturb them.
runs_share_tokens() {
  mkdir other && sed 's/fox/cat/' text/a.txt >other/b.txt
  (
    export KOZERO_CALLS_UNDER=.tokens/ KOZERO_CALLS_AT=8 KOZERO_CALLS_RANK=0 KOZERO_CALLS_DO="sleep 8"
    mpiexec="$mpiexec -genv LD_PRELOAD $preload" && alone run.dir=maker >log 2>&1
  ) &
  local job=$!
  for _ in $(seq 1 100); do ls -d .tokens/.*.partial* >/dev/null 2>&1 && break; sleep 0.1; done
  expect 0 ' text now in \.tokens/' alone run.dir=beside 'data.text=["other"]'
  lines 0 '^waiting'
  expect 0 '^waiting for the tokens in \.tokens/[0-9a-f]{16}, which process [0-9]+ on host .*, since .* makes$' alone run.dir=waiter
  also '^data .* text from \.tokens/[0-9a-f]{16};'
  wait $job || failures=$((failures + 1))
  expect 0 ' text now in \.tokens/' cat log
  expect 0 '^same$' sh -c "[ '$(tokens_of maker)' = '$(tokens_of waiter)' ] && [ '$(losses_of maker)' = '$(losses_of waiter)' ] && echo same"
  expect 0 '^other$' sh -c "[ '$(tokens_of maker)' != '$(tokens_of beside)' ] && [ '$(losses_of maker)' != '$(losses_of beside)' ] && echo other"
  expect 0 '^2$' sh -c 'ls -A .tokens | wc -l'
}

# A process that is killed while it makes tokens, or whose disk is full, leaves no files that a later run would read.
tokens_of_a_lost_run() {
  for at in 8 16; do  # in the tokenizer, in a shard
    rm -rf run .tokens
    KOZERO_CALLS_UNDER=.tokens/ KOZERO_CALLS_AT=$at KOZERO_CALLS_RANK=0 KOZERO_CALLS_DO=kill preloaded >log 2>&1
    expect 0 'partial' sh -c 'ls -A .tokens'
    rm -rf run
    expect 0 ' text now in \.tokens/' train
    expect 0 '^1$' sh -c 'ls -A .tokens | wc -l'
    rm -rf run .tokens
    KOZERO_CALLS_UNDER=.tokens/ KOZERO_CALLS_AT=$at KOZERO_CALLS_RANK=0 KOZERO_CALLS_DO=28 \
      expect 4 '^\[rank 0\] error: data.cache = ".tokens": .*No space left on device; make room, or give a folder' preloaded
    lines 1 '\] error: '
    expect 0 '^0$' sh -c 'ls -A .tokens | wc -l'
  done
}

# The largest allowed number of units gathered ahead gives the bits of one unit gathered ahead.
prefetch_as_far_as_the_deck_allows() {
  for backend in shm mpi ring; do
    for units in 1 9 64; do
      rm -rf run
      expect 0 'output in run' train comm.backend=$backend zero.stage=3 zero.prefetch_units=$units model.layers=70 \
        run.steps=3 run.check_every=1
      grep -o '"loss":[^,]*' run/metrics.jsonl >"losses.$backend.$units"
      cmp "losses.shm.1" "losses.$backend.$units" || failures=$((failures + 1))
    done
  done
}

# with_shared_memory MIB OVERRIDES...: two ranks whose /dev/shm has that size. statvfs says there is more.
with_shared_memory() {
  local mib=$1
  shift
  # shellcheck disable=SC2086
  unshare --user --map-root-user --mount bash -c "mount -t tmpfs -o size=${mib}m none /dev/shm; $mpiexec -n 2 \
    -genv LD_PRELOAD $preload -genv KOZERO_FREE_BLOCKS 1000000 \"\$@\"" bash \
    "$kozero" train "$deck" $small 'data.text=["text"]' comm.backend=shm model.dim=256 "$@"
}

# An overbooked /dev/shm, with room for the windows but not for the arrays, then not for the windows. No rank gets
# SIGBUS.
overbooked_shared_memory() {
  unshare --user --map-root-user --mount true 2>/dev/null || exit 77
  for mib in 1 8; do  # too small for UCX's own buffers
    rm -rf run
    expect 0 'output in run' with_shared_memory $mib comm.backend=mpi
  done
  for mib in 32 40; do
    rm -rf run
    expect 0 'output in run' with_shared_memory $mib
    also 'comm.backend = shm copies .* through windows'
  done
  rm -rf run
  expect 2 '^\[rank 0\] error: comm.backend = shm: /dev/shm has no room for 17 MiB of windows: free it, or take mpi' \
    with_shared_memory 20
  lines 1 '\] error: '
}

run_case
