#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_sweep_cli.sh KOZERO MPIEXEC INPUTS CASE: sweeps of tiny runs: each case once, also after a kill, a signal, a full
# disk or a failed case; job arrays; refusals. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# make_sweep STEPS AXES...: text, base.toml and m.toml, whose cases are in runs/m.
make_sweep() {
  make_text
  cat >base.toml <<'TOML'
[run]
steps = 3
[model]
layers = 1
dim = 16
heads = 2
seq = 16
[data]
text = ["text"]
[train]
global_batch = 4
micro_batch = 2
[optim]
warmup_steps = 1
TOML
  printf '[sweep]\ndeck = "base.toml"\nsteps = %s\n[axes]\n' "$1" >m.toml
  shift
  printf '%s\n' "$@" >>m.toml
}

sweep() { "$kozero" sweep m.toml "$@"; }

# states: of each case in sweep.json's order: "done 0", "failed 6", or "-" without case.json.
states() {
  python3 -c 'import json, os
for case in json.load(open("runs/m/sweep.json"))["cases"]:
    path = "runs/m/" + case["folder"] + "/case.json"
    record = json.load(open(path)) if os.path.exists(path) else None
    assert record is None or record["identity"] == case["identity"] and record["values"] == case["values"], record
    print(f"{record['"'state'"']} {record['"'exit_status'"']}" if record else "-")'
}

# files: every file of the sweep with its size and time.
files() { find runs/m -type f -printf '%p %s %T@\n' | sort; }

# wait_for N: until N cases have ended and the next one trains.
wait_for() {
  local i
  mkdir -p runs/m
  for i in $(seq 1 300); do
    [ "$(find runs/m -name case.json | wc -l)" = "$1" ] && [ "$(find runs/m -name metrics.jsonl | wc -l)" -gt "$1" ] && return
    sleep 0.1
  done
  echo "FAILED: no case trains after $1 ended"
  failures=$((failures + 1))
}

# Four cases, each once, with the losses of one run; then a larger matrix runs what is new, and another one nothing.
once() {
  make_sweep 5 'zero.stage = [0, 2]' 'ranks = [1, 2]'
  expect 0 '^runs/m: 4 cases, 4 to run: ' sweep --dry-run
  lines 4 '^ +[1-4]  zero.stage=[02] ranks=([12]) +\1 +[0-9.]+ (KiB|MiB) '
  expect 0 '^no folder$' sh -c 'test -e runs/m || echo no folder'
  expect 0 '^\[4/4\] zero.stage=2 ranks=2: done in ' sweep
  also '^runs/m: 4 cases: 4 done, 0 failed; 4 run in '
  expect 0 '^4 done 0$' sh -c "$(declare -f states); states | uniq -c | sed 's/^ *//'"
  for run in runs/m/cases/*/run; do trace "$run"; done | sort | uniq -c >traces.txt
  expect 0 '^5$' grep -c '^ *4 [1-5] ' traces.txt
  expect 0 '^0$' sh -c 'find runs/m -name "step_*" | wc -l'
  files >before.txt
  expect 0 '^runs/m: 4 cases: 4 done, 0 failed; nothing was run$' sweep
  expect 0 '^as before$' sh -c "$(declare -f files); files | diff before.txt - && echo as before"
  expect 0 '^{"sweep":"runs/m","cases":2,"done":2,"failed":0,"run":0,' sweep --only 'stage=2' --json
  expect 0 'runs/m: 4 cases, 0 to run' sweep --dry-run
  lines 4 '  done$'

  sed -i 's/\[0, 2\]/[0, 2, 3]/' m.toml
  expect 0 '^runs/m: 1 case: 1 done, 0 failed; 1 run in ' sweep --case 5
  expect 0 '^runs/m: 6 cases: 6 done, 0 failed; 1 run in ' sweep
  expect 0 '^6$' sh -c "ls runs/m/cases | wc -l"
  # The data are part of a case.
  echo one more line >>text/a.txt
  expect 2 'sweep.dir = "runs/m": its case zero.stage=0 ranks=1 was trained with other keys of \[set\], other data' sweep
  expect 0 '^runs/n: 6 cases, 6 to run' sweep sweep.dir=runs/n --dry-run
  # A sweep below a folder of texts is no text.
  for run in '2 run' 'nothing was run'; do
    expect 0 "^runs/n: 2 cases: 2 done, 0 failed; $run" sweep sweep.dir=runs/n 'data.text=[text, runs]' --only stage=0
  done
}

# A subset, a changed value and another name of the matrix: what is new runs, the rest stays, and is named.
extended() {
  make_sweep 3 'zero.stage = [0, 1, 2]'
  expect 0 '^runs/m: 3 cases: 3 done, 0 failed; 3 run in ' sweep
  files | grep cases/ >before.txt
  sed -i 's/\[0, 1, 2\]/[0, 2]/' m.toml
  expect 0 '^runs/m: 1 case of the folder is not in this matrix and stays: zero.stage=1$' sweep
  also '^runs/m: 2 cases: 2 done, 0 failed; nothing was run$'
  sed -i 's/\[0, 2\]/[3, 2]/; s/^steps/dir = "runs\/m"\n&/' m.toml
  mv m.toml renamed.toml
  expect 0 '^runs/m: 2 cases of the folder are not in this matrix and stay: zero.stage=0, zero.stage=1$' \
    "$kozero" sweep renamed.toml --json
  also '^runs/m: 2 cases: 2 done, 0 failed; 1 run in '
  also '"others":2'
  expect 0 '^as before$' sh -c "$(declare -f files); files | grep -F -f before.txt | diff before.txt - && echo as before"
  # All of them, and a case of another name, which is another deck's.
  sed -i 's/\[3, 2\]/[0, 1, 2, 3]/' renamed.toml
  expect 0 '^runs/m: 4 cases: 4 done, 0 failed; nothing was run$' "$kozero" sweep renamed.toml
  lines 0 'not in this matrix'
  # The time left is known in a call after a kill, too, and evaluations count.
  find runs/m -name case.json | head -n 2 | xargs rm
  expect 0 '; 1 to run, about [0-9.]+ .* left$' "$kozero" sweep renamed.toml
  seconds() {
    "$kozero" sweep renamed.toml sweep.dir=runs/planned --dry-run --json "$@" 2>/dev/null | sed 's/.*"seconds":\([^,}]*\)}$/\1/'
  }
  expect 0 '^True$' python3 -c "print($(seconds train.eval_every=1) > 2 * $(seconds data.val_fraction=0))"
  sed -i 's/^seq = 16$/seq = 8/' base.toml
  expect 2 'sweep.dir = "runs/m": its case zero.stage=[0-3] was trained from another text of base.toml, which is in ' \
    "$kozero" sweep renamed.toml
  also 'accepted: an empty or new folder, such as sweep.dir=runs/m-2'
}

# The deck may be edited while the sweep runs: all cases are of what it was. Data that change end the sweep.
edited() {
  make_sweep 400 'optim.lr = [1e-3, 2e-3, 3e-3]'
  "$kozero" sweep m.toml >sweep.txt 2>&1 &
  local pid=$!
  wait_for 1
  sed -i 's/^steps = 3$/&\nseed = 9/' base.toml
  wait "$pid"
  expect 0 '^0$' echo $?
  expect 0 '^3$' sh -c 'grep -l "^seed = 1 " runs/m/cases/*/run/deck.toml | wc -l'
  expect 0 '^3$' sh -c 'grep -L seed runs/m/cases/*/deck.toml | wc -l'
  rm -rf runs/m
  "$kozero" sweep m.toml >sweep.txt 2>&1 &
  pid=$!
  wait_for 1
  echo one more line >>text/a.txt
  wait "$pid"
  expect 0 '^3$' echo $?
  expect 0 'runs/m": case optim.lr=0.002: text/a.txt changed after the sweep had begun' cat sweep.txt
  expect 0 '^1$' sh -c 'ls runs/m/cases/*/case.json | wc -l'
}

# A case that overruns is ended and failed; one whose ranks are all suspended obeys a signal.
overdue() {
  make_sweep 1000000 'zero.stage = [2]' 'ranks = [2]'
  expect 1 '^\[1/1\] zero.stage=2 ranks=2: failed with status 75 after .*: sweep.timeout_s = 2: it had not ended' \
    sweep sweep.timeout_s=2
  expect 0 '"why": "sweep.timeout_s = 2: it had not ended after this time, at step [0-9]+",' cat runs/m/cases/*/case.json
  expect 2 'sweep.timeout_s = 0: accepted: number > 0, in seconds' sweep sweep.timeout_s=0
  rm -rf runs/m
  "$kozero" sweep m.toml >sweep.txt 2>&1 &
  local pid=$! ranks
  wait_for 0
  ranks=$(for each in /proc/[0-9]*; do
    [ "$(readlink "$each/cwd")" = "$PWD" ] && [ "$(readlink "$each/exe")" = "$(readlink -f "$kozero")" ] &&
      grep -qz '^train$' "$each/cmdline" && basename "$each"
  done)
  expect 0 '^2$' sh -c "echo $(echo "$ranks" | wc -w)"
  # shellcheck disable=SC2086
  kill -STOP $ranks
  kill -TERM "$pid"
  timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid"
  wait "$pid"
  expect 0 '^75$' echo $?
  expect 0 'runs/m: stopped by SIGTERM: 0 of 1 case have ended' cat sweep.txt
}

# A fixed time instead of steps, repetitions, several keys by one axis, keys for all cases.
kinds() {
  make_sweep 4 'zero.stage = [2]' \
    'size = [{name = "small", model.dim = 16}, {name = "two", "model.layers" = 2, ranks = 2, train.global_batch = 8}]'
  sed -i 's/^steps.*/minutes = 0.01\nrepetitions = 2/' m.toml
  printf '[set]\nrun.steps = 1000000\ncheckpoint.every = 1000000\n' >>m.toml
  expect 0 '^runs/m: 4 cases: 4 done, 0 failed; 4 run in ' sweep
  also '^\[2/4\] zero.stage=2 size=two \(1 of 2\): done in '
  also '^\[4/4\] zero.stage=2 size=two \(2 of 2\): done in '
  expect 0 '^4 done 75$' sh -c "$(declare -f states); states | uniq -c | sed 's/^ *//'"
  expect 0 '"ranks": 2' grep -h -A 5 '"size": "two"' runs/m/sweep.json
  also '"model.layers": 2'
  expect 0 '^2$' sh -c 'grep -l "^layers = 2 " runs/m/cases/*/run/deck.toml | wc -l'
  expect 0 '^4$' sh -c 'ls -d runs/m/cases/*/run/step_* | wc -l'
}

# Killed in the middle of a case of two ranks; the next call waits for its ranks, runs it again, and not the others.
killed() {
  make_sweep 3000 'train.micro_batch = [2, 1]' 'ranks = [1, 2]'
  "$kozero" sweep m.toml >sweep.txt 2>&1 &
  local pid=$!
  wait_for 1
  expect 2 'error: sweep.dir = "runs/m": another sweep is at work there' sweep
  expect 75 'sweep.dir = "runs/m": stopped by SIGTERM while another sweep is at work there' \
    timeout --signal=TERM --preserve-status 3 "$kozero" sweep m.toml --case 2
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  files | grep -F "$(dirname "$(find runs/m -name case.json)")/" >before.txt
  expect 0 '^runs/m: 4 cases: 4 done, 0 failed; 3 run in ' sweep
  lines 0 '^\[1/4\]'
  expect 0 '^as before$' sh -c "$(declare -f files); files | grep -F -f before.txt | diff before.txt - && echo as before"
  expect 0 '^4 3000$' sh -c "wc -l runs/m/cases/*/run/metrics.jsonl | awk '\$2 != \"total\" { print \$1 }' | uniq -c | sed 's/^ *//'"
}

# Signals are handed to the case; the sweep ends with status 75, and goes on when it is called again.
stopped() {
  make_sweep 3000 'train.micro_batch = [2, 1]' 'ranks = [2]'
  local signal
  for signal in TERM INT HUP USR1; do
    env --default-signal=INT "$kozero" sweep m.toml >sweep.txt 2>&1 &
    local pid=$!
    wait_for 0
    kill -"$signal" "$pid"
    wait "$pid"
    expect 0 '^75$' echo $?
    expect 0 "runs/m: stopped by SIG$signal: 0 of 2 cases have ended; to go on: .*kozero sweep m.toml$" cat sweep.txt
    expect 0 '^0$' sh -c 'find runs/m -name case.json | wc -l'
    rm -rf runs/m
  done
  env --default-signal=INT "$kozero" sweep m.toml run.steps=1000000 >sweep.txt 2>&1 &
  pid=$!
  wait_for 0
  kill -INT "$pid"
  sleep 0.05
  kill -INT "$pid"
  wait "$pid"
  expect 0 '^(130|75)$' echo $?
  rm -rf runs/m
  expect 0 '^runs/m: 2 cases: 2 done, 0 failed; 2 run in ' sweep run.steps=5
}

# A failing case stops no other; only --retry runs it again. A full disk fails what is written to it.
failing() {
  make_sweep 5 'train.micro_batch = [2, 1]' 'optim.lr = [1e30, 1e-3]'
  expect 6 '^\[1/4\] .*: failed with status 6 after .*: step 2: the loss .* is not finite' sweep
  also '^runs/m: 4 cases: 2 done, 2 failed; 4 run in '
  also 'error: runs/m: failed cases: 1 \(train.micro_batch=2 optim.lr=1e30\), 3 \(.*\); the first says: step 2: .*; --retry runs'
  expect 6 '^runs/m: 4 cases: 2 done, 2 failed; nothing was run$' sweep
  expect 6 '^runs/m: 2 cases: 0 done, 2 failed; 2 run in ' sweep --retry --only 'lr=1e30'
  expect 0 '^failed 6 done 0 failed 6 done 0 $' sh -c "$(declare -f states); states | tr '\n' ' '"

  rm -rf runs
  expect 4 'sweep.json.partial: .*File too large' bash -c "set -o pipefail; (ulimit -f 0; exec '$kozero' sweep m.toml) 2>&1 | cat"
  rm -rf runs
  set -- --only lr=0.001 model.dim=512 run.steps=1
  expect 4 '^runs/m: 2 cases: 0 done, 2 failed' bash -c "ulimit -f 8192; exec '$kozero' sweep m.toml $*"
  also 'failed with status 4 after .*: run.dir = .* is the size limit of a file'
  expect 0 '^runs/m: 2 cases: 2 done, 0 failed; 2 run in ' sweep --retry "$@"
}

# The tasks of a job array, all at once, run each case once.
array() {
  make_sweep 5 'zero.stage = [0, 2]' 'ranks = [1, 2]'
  expect 0 '^#SBATCH --array=1-4$' sweep --array
  also '^#SBATCH --ntasks=2$'
  also "^exec .*kozero sweep m.toml --launcher 'srun( --mpi=pmi2)? -n \{ranks\}' --case \"\\\$SLURM_ARRAY_TASK_ID\"$"
  sweep --array --launcher "$mpiexec -n {ranks}" >job.sh
  local task
  for task in 1 2 3 4; do SLURM_ARRAY_TASK_ID=$task bash job.sh >"task$task.txt" 2>&1 & done
  wait
  expect 0 '^4$' sh -c "cat task?.txt | grep -c '^runs/m: 1 case: 1 done, 0 failed; 1 run in '"
  expect 0 '^runs/m: 4 cases: 4 done, 0 failed; nothing was run$' sweep
  expect 2 '\-\-array: all cases have ended' sweep --array
}

# refused PATTERN TEXT [ARGUMENT...]: a sweep whose matrix is TEXT behind its first three lines.
refused() {
  local pattern=$1
  printf '[sweep]\ndeck = "base.toml"\n%b\n' "$2" >m.toml
  shift 2
  expect 2 "^\[rank 0\] error: $pattern" sweep "$@"
}

refusals() {
  make_sweep 5 'zero.stage = [0]'
  sweep >/dev/null
  mkdir -p full/of runs/other
  refused 'm.toml:4: zero.stag = 0: no such key; .* did you mean stage\?' '[axes]\nzero.stag = [0]'
  refused 'm.toml:4: zero.stage = \[\]: an empty axis; accepted: a list' '[axes]\nzero.stage = []'
  refused 'm.toml:4: zero.stage = 2: accepted in \[axes\]: a list' '[axes]\nzero.stage = 2'
  refused 'm.toml:4: zero.stage = 7: accepted: 0 | 1 | 2 | 3' '[axes]\nzero.stage = [0, 7]'
  refused 'm.toml:4: tc_gbit = 1: no such key' '[axes]\ntc_gbit = [1]'
  refused 'm.toml:6: zero.stage: contradicts \[set\], which gives zero.stage too \(m.toml:4\)' \
    '[set]\nzero.stage = 1\n[axes]\nzero.stage = [0, 1]'
  refused 'm.toml:5: m: contradicts the axis zero.stage' '[axes]\nzero.stage = [0]\nm = [{name = "a", zero.stage = 1}]'
  refused 'm.toml:5: ranks = \[1\]: contradicts the axis ranks' '[axes]\nrun.ranks = [1]\nranks = [1]'
  refused 'm.toml:5: run.steps: contradicts sweep.steps' 'steps = 3\n[axes]\nrun.steps = [1]'
  refused 'm.toml:4: sweep.minutes: contradicts sweep.steps' 'steps = 3\nminutes = 1'
  refused 'm.toml: the cases zero.stage=0 and zero.stage=0 are one' '[axes]\nzero.stage = [0, 0]'
  refused 'm.toml:4: m.name = "a": two values have it' '[axes]\nm = [{name = "a"}, {name = "a", model.layers = 2}]'
  refused 'm.toml: case model.dim=17: model.dim = 17: accepted are multiples of' '[axes]\nmodel.dim = [16, 17]'
  refused 'm.toml:4: run.dir = "x": each case has a folder of its own' '[set]\nrun.dir = "x"'
  refused 'm.toml:3: sweep.repetition = 2: no such key; .* did you mean repetitions\?' 'repetition = 2'
  refused 'm.toml:4: \[sweeps\]: no such section; accepted are sweep, set, axes' '[sweeps]\nx = 3'
  refused 'command line: zero.stage=1: contradicts the axis zero.stage \(m.toml:4\)' '[axes]\nzero.stage = [0]' zero.stage=1
  refused '--only x: no case has such a name' 'dir = "runs/k"' --only x
  refused '--case 2: the sweep has 1 case$' 'dir = "runs/k"' --case 2
  refused 'sweep: --launcher: it has no \{ranks\}' '' --launcher mpiexec
  refused 'no_program: cannot be started: No such file' '' --launcher 'no_program {ranks}' sweep.dir=runs/k
  refused 'sweep.dir = "runs/m": its case zero.stage=0 was trained with other keys of \[set\]' \
    '[set]\noptim.lr = 0.5\n[axes]\nzero.stage = [0]'
  refused 'sweep.dir = "full": it holds of and no sweep' 'dir = "full"'
  expect 2 'base.toml:2: \[run\]: a deck.s section; a matrix names its deck' "$kozero" sweep base.toml
  expect 2 'm.toml:2: \[sweep\]: a section of a matrix, not of a deck; accepted is `kozero sweep m.toml`' "$kozero" train m.toml
  expect 2 '\[sweep\]: a section of a matrix, which only the command sweep reads' "$kozero" train base.toml sweep.dir=x
  printf '[sweep]\ndeck = "no.toml"\n' >m.toml
  expect 2 'm.toml:2: sweep.deck = "no.toml": no such file' sweep
  expect 2 'no.toml: no readable file' "$kozero" sweep no.toml
  expect 2 'PMI_SIZE = 2: a sweep starts the ranks' env PMI_SIZE=2 "$kozero" sweep base.toml
}

run_case
