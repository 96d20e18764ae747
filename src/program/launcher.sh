# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# launcher.sh: sourced by kozero.sh. Starts the ranks of a training run under mpiexec, hands signals on to them, passes
# their output on, and ends with the run's status. restarts.sh starts them more than once.

asked=''     # the first stop signal that came
launcher=''  # the process of mpiexec, while it runs
began_s=''   # when the launcher was started

take_signals() {
  local signal
  for signal in INT TERM HUP USR1 USR2 XCPU; do trap "take $signal" "$signal"; done
}

# While something is built, a signal has its default action, and the build is in the foreground for Ctrl-C.
leave_signals() { trap - TERM HUP USR1 USR2 XCPU; trap 'exit 130' INT; }

# Rank 0 writes the file. It cannot if it is on a host that does not see this script's files; then a minute counts.
ranks_are_up() { [[ -s $KOZERO_RANKS_FILE ]] || ((SECONDS - began_s > 60)); }

# take SIGNAL: hands a stop signal on to the launcher, which hands it on to the ranks. Until the ranks are up they have
# nothing to save, and MPICH's launcher loses a signal or breaks, so the launcher is ended (stop_before_ranks).
take() {
  local before=$asked
  asked=${asked:-$1}
  [[ -n $launcher ]] || return 0
  if ! ranks_are_up; then
    end_launcher
  elif [[ $1 == INT && -n $before ]]; then
    interrupt_ranks
  elif [[ $1 =~ ^(INT|TERM|USR1)$ ]]; then
    kill -"$1" "$launcher" 2>/dev/null || true
  else  # MPICH's launcher dies of these
    kill -TERM "$launcher" 2>/dev/null || true
  fi
}

# Ends with 75, the status of a stopped run, if a signal came before a rank could take it.
stop_before_ranks() {
  [[ -n $asked ]] || return 0
  say "stopped by SIG$asked before the ranks were up, so nothing was trained; the same command runs it again"
  exit 75
}

# end_unstarted STATUS: before the launcher is started, Ctrl-C may end a program that this script waits for, and with it
# the script.
end_unstarted() {
  [[ -n $began_s || $1 == 75 ]] || stop_before_ranks
  exit "$1"
}

end_launcher() { kill -KILL "$launcher" 2>/dev/null || true; }

# A killed launcher's ranks end by themselves within a second; an ssh to a lost host does not.
end_rest_of_launcher() {
  local i
  for i in {1..10}; do
    kill -0 -- "-$launcher" 2>/dev/null || return 0
    sleep 0.1 || true
  done
  kill -KILL -- "-$launcher" 2>/dev/null || true
}

processes_below() {
  local each
  for each in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
    echo "$each"
    processes_below "$each"
  done
}

# A second Ctrl-C ends the run at once. MPICH's launcher would kill the ranks, which could then record nothing, so the
# ranks of this host get the signal; twice, because equal signals that wait are one.
interrupt_ranks() {
  local each name time found=''
  for time in 1 2; do
    for each in $(processes_below "$launcher"); do
      { read -r name <"/proc/$each/comm"; } 2>/dev/null && [[ $name == kozero* ]] || continue
      kill -INT "$each" 2>/dev/null && found=yes
    done
    sleep 0.2 || true
  done
  [[ -n $found ]] || end_launcher  # all ranks are on other hosts
}

# Copies its input to its output, and never waits for the reader, as a launcher would. See src/commands/relay.cpp. If the
# relay cannot run, cat takes its place.
pass_on() {
  local status=0
  trap '' INT TERM HUP USR1 USR2 XCPU
  unset KOZERO_STATUS_FILE  # the relay's status is not the run's
  "${deaths%/*}/relay" relay "$deaths" || status=$?
  ((status == 0 || status == 4)) || cat || true
  cat >/dev/null
  exit "$status"
}

# begin_launcher LAUNCHER...: starts it in a process group of its own, since Ctrl-C would reach it by the terminal too.
# Its output goes through relays.
begin_launcher() {
  began_s=$SECONDS
  exec 3> >(pass_on)
  relays=("$!")
  exec 4> >(pass_on >&2)
  relays+=("$!")
  set -m
  "$@" </dev/null >&3 2>&4 3>&- 4>&- &
  launcher=$!
  set +m
  exec 3>&- 4>&-
  [[ -z $asked ]] || end_launcher
}

# wait_for PROCESS: its status. A trapped signal interrupts `wait`.
wait_for() {
  local status=0
  while true; do
    wait "$1" && status=0 || status=$?
    kill -0 "$1" 2>/dev/null || return "$status"
  done
}

# The relays end with the last process that writes to them, or 5 s later if nobody reads. Their status is 4 if a file
# could not be written.
end_relays() {
  local relay
  for relay in "${relays[@]}"; do wait_for "$relay" || { (($? != 4)) || relay_status=4; }; done
}

# Bash 5.2 loses its place if a trap runs while one command substitution is within another, so none is in these scripts
# while signals are trapped.

# status_files STATUS RANKS FOLDER: makes the files by which the ranks tell their status and that they are up. FOLDER gets
# the file in which relays note a death, and their program under a name that tells them from ranks.
status_files() {
  export KOZERO_STATUS_FILE=$1 KOZERO_RANKS_FILE=$2
  local program
  program=$(binary_of "$preset")
  deaths=$3/deaths
  mkdir -p "$3"
  : >"$1"; : >"$2"; : >"$deaths"
  ln -sf "$program" "$3/relay"
}

# explain_silence STATUS: sets `why`: why a launcher ended with this status though no rank told its own.
explain_silence() {
  local process='' name
  if [[ ! -s $KOZERO_RANKS_FILE ]]; then
    why="the ranks did not start: the launcher ended with status $1; its lines, and MPI's, are above"
    return
  fi
  IFS= read -r process <"$deaths" || true
  name=$(grep -m 1 -F "(process ${process:-none})" "$KOZERO_RANKS_FILE") ||
    name='a rank or the launcher'
  why="$name ended without a word: killed (as when memory is exhausted), or crashed; the launcher ended with status $1"
}

# train_under LAUNCHER...: ends with the run's own status, which the run writes to a file: the launcher's may be another
# (docs/reliability.md).
train_under() {
  local status=0 folder told='' why deaths relays relay_status=0
  folder=$(mktemp -d)
  trap 'status=$?; rm -rf "$folder"; end_unstarted $status' EXIT
  status_files "$folder/status" "$folder/ranks" "$folder"
  stop_before_ranks
  begin_launcher "$@"
  { wait_for "$launcher" || status=$?; } 2>/dev/null  # Bash reports a killed launcher here
  end_rest_of_launcher
  end_relays
  launcher=''
  IFS= read -r told <"$KOZERO_STATUS_FILE" || true
  [[ -z $told || $told == 0 ]] || exit "$told"
  if ((status == 0)) || [[ -n $told ]]; then exit "$relay_status"; fi
  ranks_are_up || stop_before_ranks
  [[ -s $KOZERO_RANKS_FILE ]] || ! ranks_are_up || exit "$status"
  explain_silence "$status"
  say "$why"
  exit 5
}
