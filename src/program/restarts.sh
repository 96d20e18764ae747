# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# restarts.sh: `kozero.sh --restarts N [--hosts FILE] -n R train DECK`, sourced by kozero.sh. Starts a run and, when it
# has lost a rank, a host or its launcher, starts it again from its newest checkpoint on the hosts that answer ssh.
#   It gives up after N restarts in a row without a new checkpoint.
#   KOZERO_PROBE_S (5): seconds between two questions to all hosts; a host that misses two is lost. A run that has fewer
#   ranks than it was asked for is stopped, saved and started again when lost hosts have answered three times.
# The program writes its exit status to a file beside run.dir, which all hosts must see. Each start has a file of its own,
# since ranks of an earlier start on a host that was cut off may end later. Bits do not depend on the number of ranks
# (docs/exactness.md), so the run ends with those of an undisturbed one.

hosts=()                  # names, in the order of the file
declare -A slots=()       # ranks that a host takes, by name
declare -A missed=()      # questions that a host has not answered, one after another
declare -A answered=()    # questions that it has answered, one after another
this_host=${HOSTNAME:-host}
mine=$this_host.$$        # of the names of this script's files
files=''                  # before that: the path of run.dir, as a hidden name
replies=''                # a folder of this script
asked_s=-100              # when all hosts were last asked
living=()                 # hosts that answered when they were last asked to start

# read_hosts FILE: lines `HOST`, `HOST:N` (MPICH) or `HOST slots=N` (Open MPI); `#` begins a comment. ifname= (MPICH) and
# max_slots= (Open MPI) are accepted and not used.
read_hosts() {
  local file=$1 line name count rest word number=0
  [[ -f $file && -r $file ]] || refuse "--hosts $file: not a file that can be read"
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line//$'\r'/} line=${line#$'\xEF\xBB\xBF'}  # as Windows' editors write
    read -r name rest <<<"$(sed 's/#.*//; s/[[:space:]]*=[[:space:]]*/=/g' <<<"$line")" || true
    [[ -n $name ]] || continue
    count=1
    if [[ $name =~ ^([^:]+):([0-9]+)$ ]]; then name=${BASH_REMATCH[1]} count=${BASH_REMATCH[2]}; fi
    for word in $rest; do
      case $word in
        slots=*) count=${word#slots=} ;;
        max[-_]slots=[0-9]* | ifname=*) ;;
        *) name='' ;;
      esac
    done
    if [[ ! $name =~ ^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$ || ! $count =~ ^[1-9][0-9]{0,4}$ ]]; then
      refuse "$file:$number: '$line': accepted: HOST, HOST:N or 'HOST slots=N', with a name or IPv4 address and N ranks, 1 or more"
    fi
    name=${name,,}
    [[ -z ${slots[$name]:-} ]] || refuse "$file:$number: $name is there twice; name it once, with slots=N"
    hosts+=("$name")
    slots[$name]=$count
  done <"$file"
  ((${#hosts[@]} > 0)) || refuse "$file names no host; accepted: lines HOST, HOST:N or 'HOST slots=N'"
}

# slots_of HOST...: their sum.
slots_of() {
  local host sum=0
  for host in "$@"; do sum=$((sum + ${slots[$host]})); done
  echo "$sum"
}

# ask_host HOST COMMAND: by the program by which mpiexec reaches a host, too. BatchMode: ssh fails instead of asking for a
# password.
ask_host() {
  timeout 10 "${HYDRA_LAUNCHER_EXEC:-ssh}" -oBatchMode=yes -oConnectTimeout=2 "$1" "$2" </dev/null >"$replies/$1" 2>&1
}

# Asks all hosts at the same time and counts in `answered` and `missed`.
ask_all_hosts() {
  local host question=()
  for host in "${hosts[@]}"; do
    ask_host "$host" true &
    question+=("$!")
  done
  for host in "${hosts[@]}"; do
    if wait_for "${question[0]}"; then
      missed[$host]=0 answered[$host]=$((${answered[$host]:-0} + 1))
    else
      answered[$host]=0 missed[$host]=$((${missed[$host]:-0} + 1))
    fi
    question=("${question[@]:1}")
  done
  asked_s=$SECONDS
}

# The hosts to start on, by answers that are at most 2 s old.
choose_living() {
  local host
  living=()
  ((SECONDS - asked_s <= 2)) || ask_all_hosts
  for host in "${hosts[@]}"; do ((missed[$host] > 0)) || living+=("$host"); done
}

# Status 5: no communication with a host.
lose() { say "$*"; exit 5; }

# Before the first start: a host that is named and does not answer is more often a mistake than a loss.
require_all_hosts() {
  local host text
  choose_living
  for host in "${hosts[@]}"; do
    ((missed[$host] > 0)) || continue
    text=$(tail -n 1 "$replies/$host" | tr -d '\r')
    if [[ $text == *'ermission denied'* || $text == *'verification failed'* ]]; then
      lose "host $host: ssh would ask for a password, or does not know the host ($text);" \
        "'ssh -oBatchMode=yes $host true' must work"
    fi
    lose "host $host does not answer ssh (2 s to connect, 10 s to reply: ${text:-no reply}); correct its name or take it out of the list"
  done
}

# require_program PROGRAM: each host has it, its libraries and a processor that it was built for. mpiexec would not end.
require_program() {
  local host question=()
  for host in "${hosts[@]}"; do
    ask_host "$host" "$(printf '%q --version' "$1")" &
    question+=("$!")
  done
  for host in "${hosts[@]}"; do
    wait_for "${question[0]}" || lose "host $host cannot start $1 ($(tail -n 1 "$replies/$host" | tr -d '\r'));" \
      "all hosts need this build under the same path, and its libraries"
    question=("${question[@]:1}")
  done
}

newest_checkpoint() {
  local folder newest=''
  for folder in "$1"/step_?????????; do [[ ! -d $folder ]] || newest=${folder##*/}; done
  echo "$newest"
}

# By the flags that CMake gives it. Others are taken for Hydra, the launcher of MPICH, Intel MPI and MVAPICH.
is_open_mpi() { [[ " ${mpiexec[*]} " == *' --oversubscribe '* ]]; }

# start_of RANKS: fills `launch` with the command that starts the ranks on the living hosts.
start_of() {
  local host list=''
  for host in "${living[@]}"; do list+=${list:+,}$host:${slots[$host]}; done
  launch=("${mpiexec[@]}")
  if [[ -n $list ]] && is_open_mpi; then
    launch+=(--host "$list" -x KOZERO_STATUS_FILE -x KOZERO_RANKS_FILE -x KOZERO_DECK_COPY -x OMP_NUM_THREADS)
  elif [[ -n $list ]]; then
    launch+=(-hosts "$list")
  fi
  launch+=(-n "$1")
}

# Watches the launcher until it has ended. Sets `why` if it ends the launcher, and `regained` if lost hosts are back.
watch_launcher() {
  local told=0 patience=10 next=$((SECONDS + probe_s)) host word
  why=''
  while kill -0 "$launcher" 2>/dev/null; do
    { sleep 0.2 || true; } 2>/dev/null  # Ctrl-C ends it; Bash reports a killed launcher here
    # The program has reported its end, and the launcher cannot tell a host that is gone.
    if ((told == 0)) && [[ -s $KOZERO_STATUS_FILE ]]; then
      told=$SECONDS
      IFS= read -r word <"$KOZERO_STATUS_FILE" || true
      [[ $word != 0 ]] || patience=30  # the sample at the end comes after the status
    fi
    if ((told > 0 && SECONDS - told > patience)); then end_launcher; fi
    ((${#hosts[@]} > 0 && SECONDS >= next)) || continue
    { ask_all_hosts; } 2>/dev/null
    next=$((SECONDS + probe_s))
    for host in "${living[@]}"; do
      ((missed[$host] == 0)) || next=$SECONDS  # at once again
      ((missed[$host] >= 2)) || continue
      why="host $host does not answer"
      end_launcher
    done
    if [[ -z $why$regained ]] && ((started < ranks)); then stop_if_regained; fi
  done
}

# Stops a run on fewer ranks than asked for, which saves, if hosts that it lacks have answered three times.
stop_if_regained() {
  local host
  [[ -n $stop_signal ]] || return 0
  for host in "${hosts[@]}"; do
    [[ " ${living[*]} " != *" $host "* ]] && ((answered[$host] >= 3)) || continue
    regained+="${regained:+ }$host"
  done
  [[ -n $regained ]] || return 0
  say "answering again: $regained; the run saves and starts again on all hosts"
  kill -"$stop_signal" "$launcher" 2>/dev/null || true
}

# is_lost STATUS: whether a start ended by a loss. STATUS: the program's; none if it was killed. After the first start, 2
# means that ranks of the last start still hold the folder, or that the deck does not accept fewer ranks.
is_lost() {
  case $1 in
    '' | 5) return 0 ;;
    2) [[ $first == no ]] ;;
    75) [[ -n $regained && -z $asked ]] ;;
    *) (($1 >= 128 && $1 != 130)) ;;
  esac
}

# start_once COMMAND...: on the living hosts. Returns after a loss, else ends this script with the run's status.
start_once() {
  local told='' status=75
  end_if_asked
  started=$ranks why='no host answers' regained=''
  if ((${#hosts[@]} > 0 && ranks > $(slots_of "${living[@]}"))); then started=$(slots_of "${living[@]}"); fi
  if ((started > 0)); then
    start_of "$started"
    starts=$((starts + 1))
    status_files "$files.status.$mine.$starts" "$files.ranks.$mine.$starts" "$replies/.launch"
    begin_launcher "${launch[@]}" "$@"
    watch_launcher
    { wait "$launcher" && status=0 || status=$?; } 2>/dev/null
    end_rest_of_launcher
    launcher=''
    end_relays
    IFS= read -r told <"$KOZERO_STATUS_FILE" || true
    # 0 is that of all ranks; other numbers may be those of signals.
    if [[ -z $told$why && $status == 0 ]]; then exit "$relay_status"; fi
    if [[ $told == 75 && -n $regained ]]; then why="$regained answered again"; fi
    : "${why:=${told:+the run ended with status $told on $started ranks}}"
    [[ -n $why ]] || explain_silence "$status"
    [[ -n $told || -s $KOZERO_RANKS_FILE ]] || end_if_asked
    rm -f "$KOZERO_STATUS_FILE" "$KOZERO_RANKS_FILE"
  fi
  if [[ -n $told ]] && ! is_lost "$told"; then exit "$told"; fi
  [[ -z $asked ]] || exit "${told:-5}"
  first=no
}

# Ends with 75, the status of a stopped run, although no rank ran that could save.
end_if_asked() {
  [[ -n $asked ]] || return 0
  say "stopped by SIG$asked while no rank ran; $(what_goes_on)"
  exit 75
}

# begin_supervision HOSTS_FILE PROGRAM: checks what can be checked before a step is spent.
begin_supervision() {
  local path folder
  if [[ -n $1 ]]; then read_hosts "$1"; fi
  if ((${#hosts[@]} > 0 && ranks > $(slots_of "${hosts[@]}"))); then
    refuse "-n $ranks: $1 has $(slots_of "${hosts[@]}") slots; give fewer ranks, more hosts or larger slots=N"
  fi
  [[ $probe_s =~ ^[1-9][0-9]{0,4}$ ]] || refuse "KOZERO_PROBE_S = $probe_s: accepted: whole seconds, 1 or more"
  replies=$(mktemp -d)
  trap leave_nothing EXIT  # the deck's copy, too
  if ((${#hosts[@]} > 0)); then
    require_all_hosts
    require_program "$2"
  fi
  path=${run%/}
  folder=.
  [[ $path != */* ]] || folder=${path%/*}/
  mkdir -p "$folder"
  files=$(cd "$folder" && pwd -P)
  files+=/.${path##*/}  # all hosts see these files
  remove_leftovers
  mv "$KOZERO_DECK_COPY" "$files.deck.$mine.0"
  export KOZERO_DECK_COPY=$files.deck.$mine.0
}

# The files of scripts of this host that were killed.
remove_leftovers() {
  local each process
  for each in "$files".{status,ranks,deck}."$this_host".*; do
    process=${each#"$files".*."$this_host".}
    process=${process%.*}
    [[ ! $process =~ ^[0-9]+$ || -e /proc/$process ]] || rm -f "$each"
  done
}

leave_nothing() {
  local status=$?
  [[ -z $launcher ]] || kill -KILL -- "-$launcher" 2>/dev/null || true
  [[ -z $replies ]] || rm -rf "$replies"
  rm -f "$KOZERO_DECK_COPY"
  [[ -z $files ]] || rm -f "$files".{status,ranks}."$mine".*
  end_unstarted "$status"
}

# supervise RESTARTS HOSTS_FILE RANKS RUN_DIR RESUME SIGNAL PROGRAM train ...: ends with the run's status, or 5 after
# RESTARTS restarts in a row without a new checkpoint. HOSTS_FILE and SIGNAL, which stops the run, may be empty.
supervise() {
  local restarts=$1 ranks=$3 run=$4 stop_signal=$6 probe_s=${KOZERO_PROBE_S:-5} tries=0 starts=0 first=yes
  local before now started launch why regained on  # of one start
  local same_command='the same command' deaths relays relay_status=0
  before=$(newest_checkpoint "$run")
  [[ $5 == auto ]] || same_command+=' with checkpoint.resume=auto'
  begin_supervision "$2" "$7"
  shift 6
  while true; do
    start_once "$@"
    now=$(newest_checkpoint "$run")
    if [[ $now != "$before" ]]; then tries=0 before=$now; fi
    [[ $why == *' answered again' ]] || tries=$((tries + 1))
    if ((tries > restarts)); then
      say_end
      exit 5
    fi
    pause_before_restart
    if ((${#hosts[@]} > 0)); then choose_living; fi
    on='this machine'
    ((${#hosts[@]} == 0)) || on=${living[*]:-no host}
    say "restart (without progress: $tries of $restarts) from ${before:-the beginning} on $on: $why"
  done
}

# What the same command does next.
what_goes_on() {
  if [[ -n $before ]]; then
    echo "$same_command continues it from $before"
  else
    echo "it has saved no checkpoint, so $same_command starts it over, from the first step"
  fi
}

say_end() {
  if ((restarts > 0)); then
    say "gave up after $restarts restarts without a new checkpoint in $run (${before:-none yet}): $why; see $run/log.txt and" \
      "the lines above; $(what_goes_on)"
  else
    say "the run is lost: $why; $(what_goes_on)${before:+, --restarts N by itself}"
  fi
}

# Not before the first restart; then 1, 2, 4, ... 64 s: what prevents a start may pass. A signal ends the pause.
pause_before_restart() {
  local pause
  if ((tries > 1)) && [[ -z $asked ]]; then
    sleep $((1 << (tries < 8 ? tries - 2 : 6))) &
    pause=$!
    wait "$pause" || kill "$pause" 2>/dev/null || true
  fi
  end_if_asked
}
