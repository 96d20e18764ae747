#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# kozero.sh: from a fresh clone to a run. Finds what is missing, installs it (Debian), configures, builds, runs.
# Installing is done by cmake/install_*.sh; signals and ranks are the subject of src/program/launcher.sh.
set -euo pipefail

readonly kRoot=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly kPresets='release debug asan tsan cuda'

say() { echo "kozero: $*" >&2; }
die() { say "$*"; exit 1; }
refuse() { say "$*"; exit 2; }  # of usage

# Before signals are trapped: Bash loses its place if a trap runs while it reads a file.
source "$kRoot/src/program/launcher.sh"
source "$kRoot/src/program/restarts.sh"

usage() {
  cat <<'TEXT'
usage: ./kozero.sh [--preset P] [-n RANKS] [--restarts N] [--hosts FILE] COMMAND [ARGUMENT...]

  build             install what is missing, configure and build
  test [ARGS]       the same, then run the tests; ARGS go to ctest (-L unit, -R partition, ...)
  help [COMMAND]    this text, or what the program says of a command
  train, verify, plan, eval, generate, plot, inspect, prepare, ...
                    build, then run kozero COMMAND ARGUMENT...
  --help, COMMAND --help
                    what the program says of its commands and their options; installs and builds nothing

  --preset P        release (default), debug, asan, tsan or cuda; each builds in build/P; KOZERO_PRESET=P is the same
  -n RANKS          run under mpiexec on RANKS ranks; for train and verify the default is the deck's run.ranks
  --restarts N      train: if a rank or a host is lost, start again from the newest checkpoint, on the hosts that answer;
                    give up after N restarts in a row without a new checkpoint
  --hosts FILE      train: run on these hosts, one per line: HOST, HOST:SLOTS or 'HOST slots=SLOTS'

  KOZERO_NO_INSTALL=1   only say what is missing, install nothing
  KOZERO_BUILD_JOBS=N   compile with N jobs
  OMP_NUM_THREADS=N     threads of a rank (default: the cores, divided by the ranks)
  KOZERO_MARCH=M        compile for this kind of processor, such as x86-64-v3 (default: native, this machine's)
  KOZERO_CUDA_ARCH=N    with --preset cuda: compile for 80, 86, 89 or 90 (default: what this machine's GPUs run, else 80)
TEXT
}

# ---- configure and build ----------------------------------------------------------------------------------------------

# What a configuration depends on and ninja does not watch: the door, the environment, which folders exist.
configuration_key() {
  cd "$kRoot"
  { cat kozero.sh CMakePresets.json cmake/*.* cmake/patches/*
    ls CMakeLists.txt ./*/CMakeLists.txt src/*/CMakeLists.txt src/main.cpp tests/*/CMakeLists.txt 2>/dev/null || true
    printf '%s\n' "$kRoot" "$1" "${CXX:-}" "${CUDACXX:-}" "${CMAKE_PREFIX_PATH:-}" "${SPACK_ENV:-}" \
      "${KOZERO_CUDA_ARCH:-}" "${KOZERO_MARCH:-}"
    command -v clang-format-14 clang-tidy-14 || true
  } | sha256sum | cut -d ' ' -f 1
}

# Runs cmake from a fresh cache, which may remember what was missing; its output goes to configure.log.
configure() {
  local build=$kRoot/build/$1
  mkdir -p "$build"
  rm -f "$build/missing.txt" "$build/configured"
  cmake --fresh -S "$kRoot" --preset "$1" "${@:2}" >"$build/configure.log" 2>&1
}

configuration_failed() {
  { sed -n '/CMake Error/,$p' "$kRoot/build/$1/configure.log" | grep . || cat "$kRoot/build/$1/configure.log"; } | head -n 30 >&2
  die "configuring failed; the whole output is in build/$1/configure.log"
}

# If only Catch2 cannot be had, everything but the tests still works.
configure_without_tests() {
  local missing=$kRoot/build/$1/missing.txt
  [[ $(grep -c . "$missing") == 1 ]] && grep -q '^Catch2' "$missing" || return 1
  say "Catch2 3 cannot be installed here: the tests are left out, all else works"
  configure "$1" -DKOZERO_TESTS=OFF
}

# Arrow reads Parquet files. All else works without it.
fetch_arrow() {
  [[ -z ${KOZERO_NO_INSTALL:-} && $(uname -m) == x86_64 ]] || return 0
  "$kRoot/cmake/install_arrow.sh" >/dev/null || say "Arrow cannot be fetched: Parquet files will be refused"
}

# Configures the preset $1 for the command $2, installing first what it lacks, unless all is as it was.
ensure_configured() {
  local preset=$1 command=$2 build=$kRoot/build/$1 key before
  [[ $preset != cuda ]] || choose_cuda_architecture
  key=$(configuration_key "$preset")
  before=$(cat "$build/configured" 2>/dev/null || true)
  if [[ $before == "$key" ]] || [[ $before == "$key, without tests" && $command != test ]]; then return; fi
  leave_signals
  "$kRoot/cmake/install_packages.sh" tools
  if [[ $preset == cuda ]]; then find_cuda_compiler; fi
  if [[ -z ${KOZERO_NO_INSTALL:-} ]] && has_cuda_compiler; then
    "$kRoot/cmake/install_nvidia_wheels.sh" >/dev/null ||
      say "cuDNN's front end cannot be fetched: on GPUs, KoZeRO's own kernels compute attention"
  fi
  if python3 -c 'import ensurepip, venv' 2>/dev/null; then fetch_arrow; fi
  say "configuring (preset $preset)"
  if ! configure "$preset"; then
    [[ -s $build/missing.txt ]] || configuration_failed "$preset"
    "$kRoot/cmake/install_packages.sh" missing "$build/missing.txt" "$preset"
    fetch_arrow
    if ! configure "$preset"; then
      [[ $command != test ]] && configure_without_tests "$preset" || configuration_failed "$preset"
      key+=", without tests"
    fi
  fi
  sed -n 's/^-- KoZeRO/KoZeRO/p; s/^--   /  /p' "$build/configure.log" >&2
  echo "$key" >"$build/configured"
}

has_cuda_compiler() { command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; }

find_cuda_compiler() {
  has_cuda_compiler ||
    die "the preset cuda needs the CUDA Toolkit (12 or newer): nvcc is neither on the PATH nor in /usr/local/cuda/bin"
}

# Exports the architecture to compile for: the newest that all GPUs of this machine run, unless the user named one.
choose_cuda_architecture() {
  [[ -z ${KOZERO_CUDA_ARCH:-} ]] || return 0
  local lowest each
  lowest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -n | head -n 1) || true
  [[ $lowest =~ ^[0-9]+$ ]] || return 0
  ((lowest >= 80)) || die "the GPU has compute capability ${lowest::-1}.${lowest: -1}; KoZeRO needs 8.0 (A100) or newer"
  for each in 80 86 89 90; do
    ((each > lowest)) || KOZERO_CUDA_ARCH=$each
  done
  export KOZERO_CUDA_ARCH
}

# ccache shares objects between clones at different paths, but never between machines with different CPUs.
share_compiler_cache() {
  command -v ccache >/dev/null || return 0
  export CCACHE_BASEDIR=$kRoot CCACHE_NOHASHDIR=1
  CCACHE_NAMESPACE=$("${CXX:-c++}" -march=native -Q --help=target 2>/dev/null | sha256sum | cut -c 1-12)
  export CCACHE_NAMESPACE
}

# build_target PRESET TARGET: prints nothing if nothing is to be done.
build_target() {
  local build=$kRoot/build/$1
  share_compiler_cache
  if [[ $(ninja -C "$build" -n "$2" 2>/dev/null) == *'no work to do'* ]]; then return; fi
  leave_signals
  say "building $2 (preset $1)"
  ninja -C "$build" ${KOZERO_BUILD_JOBS:+-j "$KOZERO_BUILD_JOBS"} "$2" >&2 || die "the build failed (preset $1)"
}

# What `plot` draws with. If it cannot be had, the command says so itself.
ensure_gnuplot() { command -v gnuplot >/dev/null || "$kRoot/cmake/install_packages.sh" gnuplot || true; }

# ---- run --------------------------------------------------------------------------------------------------------------

binary_of() {
  local name=kozero
  [[ $1 != cuda ]] || name=kozero-cuda
  echo "$kRoot/build/$1/$name"
}

# A job script of Slurm has SLURM_PROCID too, but no step.
under_a_launcher() { [[ -n ${PMI_RANK:-}${PMIX_RANK:-}${SLURM_STEP_ID:+${SLURM_PROCID:-}}${OMPI_COMM_WORLD_RANK:-} ]]; }

run_tests() {
  local preset=$1 build=$kRoot/build/$1 start=$SECONDS status=0
  shift
  # MPI, HDF5 and OpenMP are not built for ThreadSanitizer, which does not see how they order their threads. UCX's hooks
  # of memory calls run while a thread ends, which ThreadSanitizer does not survive.
  [[ $preset != tsan ]] || export TSAN_OPTIONS=ignore_noninstrumented_modules=1 UCX_MEM_EVENTS=no
  [[ $preset != asan ]] || export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 UBSAN_OPTIONS=print_stacktrace=1
  # Two more than the cores: tests that start processes count as one core and sleep for much of their time.
  ctest --test-dir "$build" --output-on-failure --parallel $(($(nproc) + 2)) --no-tests=error "$@" || status=$?
  if ((status == 0)); then say "all tests passed in $((SECONDS - start)) s (preset $preset)"; else
    say "tests FAILED (preset $preset); their output is above and in $build/Testing/Temporary/LastTest.log"
  fi
  return "$status"
}

# read_launcher PRESET: sets `mpiexec`, the words that start ranks.
read_launcher() {
  IFS=';' read -r -a mpiexec < <(sed -n 's/^KOZERO_MPIEXEC:INTERNAL=//p' "$kRoot/build/$1/CMakeCache.txt")
  if [[ -t 1 ]]; then export KOZERO_TERMINAL=${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}; fi  # mpiexec makes it a pipe
}

# run_ranks PRESET RANKS COMMAND...
run_ranks() {
  local preset=$1 ranks=$2 mpiexec
  shift 2
  read_launcher "$preset"
  mpiexec+=(-n "$ranks" "$(binary_of "$preset")")
  if [[ $1 == train ]]; then train_under "${mpiexec[@]}" "$@"; fi
  exec "${mpiexec[@]}" "$@"
}

# run_with_restarts PRESET RANKS RESTARTS HOSTS_FILE train ...: RANKS and HOSTS_FILE may be empty.
run_with_restarts() {
  local preset=$1 ranks=$2 restarts=${3:-0} file=$4 told mpiexec kind=restarts binary
  shift 5
  if under_a_launcher || [[ -n ${SLURM_JOB_ID:-} ]]; then
    refuse "--restarts and --hosts start ranks; inside a job of Slurm or mpiexec use inputs/slurm/*.sh"
  fi
  export KOZERO_STARTED_BY="$0 --restarts $restarts${file:+ --hosts $file}"  # for the command with which a stopped run goes on
  [[ $preset == release ]] || KOZERO_STARTED_BY+=" --preset $preset"
  ((restarts > 0)) || kind=hosts
  KOZERO_DECK_COPY=$(mktemp)  # each start is of the deck that is there now
  export KOZERO_DECK_COPY
  trap 'rm -f "$KOZERO_DECK_COPY"' EXIT
  binary=$(binary_of "$preset")
  told=$("$binary" ranks "$kind" "$@") || end_unstarted $?
  mapfile -t told <<<"$told"  # ranks, run.dir, checkpoint.resume, a stop signal
  read_launcher "$preset"
  supervise "$restarts" "$file" "${ranks:-${told[0]}}" "${told[1]}" "${told[2]}" "${told[3]:-}" \
    "$binary" train "$@" "checkpoint.resume=${told[2]}"
}

# verify_with_threads PRESET RANKS verify ...: with 1 thread per rank, then with 2 and 3. A process keeps its number of
# threads, so the other programs compare with the bits that the first one wrote.
verify_with_threads() (
  preset=$1 ranks=$2
  shift 2
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  export KOZERO_DECK_COPY=$folder/deck.toml  # all three are of the deck that is there now
  "$(binary_of "$preset")" ranks "$@" >/dev/null || exit $?
  for threads in 1 2 3; do
    run_program "$preset" "$ranks" "$@" --reference "$folder/bits" "run.threads=$threads"
  done
)

# run_program PRESET RANKS COMMAND...: in a shell of its own, since what it calls replaces the shell.
run_program() (
  if ((${2:-1} > 1)); then run_ranks "$@"; fi
  exec "$(binary_of "$1")" "${@:3}"
)

# run_command PRESET RANKS COMMAND...: RANKS may be empty.
run_command() {
  local preset=$1 ranks=$2 binary
  shift 2
  binary=$(binary_of "$preset")
  export KOZERO_STARTED_BY=$0  # for the command with which a stopped run goes on
  [[ $preset == release ]] || KOZERO_STARTED_BY+=" --preset $preset"
  [[ -x $binary ]] || die "there is no program kozero in this tree's build: $binary"
  if [[ -z $ranks && $1 =~ ^(train|verify)$ ]] && ! under_a_launcher; then
    ranks=$("$binary" ranks "$@") || end_unstarted $?
    [[ $ranks != *$'\n'* ]] || export KOZERO_DECK_HASH=${ranks#*$'\n'}  # another deck is refused
    ranks=${ranks%%$'\n'*}
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || die "kozero ranks answered '$ranks' instead of a number"
  fi
  if [[ $1 == verify && -z ${OMP_NUM_THREADS:-} && ! " ${*:2} " =~ \ (--reference|--replay|run\.threads)[=\ ] ]] &&
    [[ $preset != cuda ]] && ! under_a_launcher; then
    verify_with_threads "$preset" "$ranks" "$@"
    return
  fi
  if ((${ranks:-1} > 1)); then run_ranks "$preset" "$ranks" "$@"; fi
  stop_before_ranks
  exec "$binary" "$@"
}

# ---- help: installs and builds nothing ---------------------------------------------------------------------------------

asks_for_help() {
  local argument
  for argument in "$@"; do [[ $argument != -h && $argument != --help ]] || return 0; done
  return 1
}

# show_help PRESET COMMAND...: from the program of the last build, however old; without one, the usage of this script.
show_help() {
  if [[ $2 == build || $2 == test ]]; then usage; return; fi
  if [[ -x $(binary_of "$1") ]]; then exec "$(binary_of "$1")" "${@:2}"; fi
  usage
  printf '\nThe program is not built yet. `./kozero.sh build` makes it; then `./kozero.sh %s` says more.\n' "${*:2}"
}

# lacks_deck COMMAND...: the command needs a deck, and its arguments are none, options or overrides.
lacks_deck() {
  [[ ${1:-} =~ ^(train|verify|plan)$ ]] || return 1
  local argument
  for argument in "${@:2}"; do [[ $argument == -* || $argument == *=* ]] || return 1; done
}

# The decks that are ready to train, with what each opens with.
name_decks() {
  local deck
  say "$1: give a deck, such as ./kozero.sh $1 inputs/quickstart.toml; the decks of inputs/ are"
  for deck in "$kRoot"/inputs/*.toml "$kRoot"/inputs/demos/*.toml; do
    ! grep -q '^\[sweep\]' "$deck" || continue  # a matrix
    printf '  %-30s %s\n' "${deck#"$kRoot/"}" "$(sed -n '1s/^# [^ ]*: //p' "$deck")" >&2
  done
}

# ---- the command line -------------------------------------------------------------------------------------------------

wanted_by() {
  case $1 in
    --preset) echo "a name: $kPresets" ;;
    --hosts) echo 'a file' ;;
    *) echo 'a number' ;;
  esac
}

check_preset() { [[ " $kPresets " == *" $1 "* ]] || refuse "--preset '$1' is not one of: $kPresets"; }
check_ranks() { [[ $1 =~ ^[1-9][0-9]*$ ]] || refuse "-n '$1' is not a number of ranks (1 or more)"; }
check_restarts() { [[ $1 =~ ^(0|[1-9][0-9]{0,5})$ ]] || refuse "--restarts '$1' is not a number of restarts (0 or more)"; }

main() {
  local preset=${KOZERO_PRESET:-release} ranks='' restarts='' hosts_file=''
  while (($# > 0)); do
    if [[ $1 =~ ^--(preset|restarts|hosts)=(.*)$ ]]; then set -- "--${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${@:2}"; fi
    case $1 in
      --preset | --restarts | --hosts | -n) [[ -n ${2:-} ]] || refuse "$1 wants $(wanted_by "$1")" ;;&
      --preset) preset=$2 ;;
      -n) ranks=$2; check_ranks "$ranks" ;;
      --restarts) restarts=$2; check_restarts "$restarts" ;;
      --hosts) hosts_file=$2 ;;
      *) break ;;
    esac
    shift 2
  done
  local command=${1:-help}
  if [[ $command == train ]]; then take_signals; else leave_signals; fi
  trap 'end_unstarted $?' EXIT
  if [[ $command == build || $command == test ]] && [[ ${2:-} == --preset && -n ${3:-} ]]; then
    preset=$3
    set -- "$command" "${@:4}"
  fi
  check_preset "$preset"
  if asks_for_help "$@"; then show_help "$preset" "$@"; return; fi
  if lacks_deck "$@"; then name_decks "$command"; return 2; fi
  [[ -z $restarts$hosts_file || $command == train ]] || refuse "--restarts and --hosts go with train, not with $command"
  case $command in
    help) if (($# > 1)); then show_help "$preset" "${@:2}" --help; else usage; fi ;;
    build)
      (($# == 1)) || refuse "build takes no argument '$2'; a preset is chosen with --preset"
      ensure_configured "$preset" build
      build_target "$preset" all
      say "built: build/$preset" ;;
    test)
      "$kRoot/cmake/install_packages.sh" style
      ensure_configured "$preset" test
      build_target "$preset" all
      run_tests "$preset" "${@:2}" ;;
    *)
      ensure_configured "$preset" "$command"
      build_target "$preset" kozero
      if [[ $command == train ]]; then take_signals; fi
      stop_before_ranks
      [[ $command != bench ]] || build_target "$preset" kozero-bench
      [[ ! $command =~ ^(plot|report)$ ]] || ensure_gnuplot
      if [[ -n $restarts$hosts_file ]]; then run_with_restarts "$preset" "$ranks" "$restarts" "$hosts_file" "$@"; fi
      run_command "$preset" "$ranks" "$@" ;;
  esac
}

main "$@"
