#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# gpu.sh: checks that need a machine with a GPU, in calls of less than 9 minutes each, the most important first.
#   tests/gpu.sh [--dry-run] [CALL...]   run calls on this machine (default: all, in this order):
#     A   the device, the libraries that are found; whether kernels read their arguments where the host puts them, every
#         kernel against its reference, gradients against differences; the banner, two steps of 124M
#     B   a step of 124M at three batches, repeating and not; NCCL; 20 losses beside the host's
#     C   a step's kernels at 124M's shapes; every algorithm of cuBLASLt's heuristic, and the step with the fastest
#     D   tokens per second of 124M, 1558M and a Llama of 0.5B beside PyTorch compiled
#     E   stages 0-3 bit for bit on 1-4 ranks of one GPU, memory, compute-sanitizer, the NCCL mock
#   tests/gpu.sh bundle FILE             pack the programs, libraries and decks that the calls use, for a machine that has a
#                                        driver, CUDA 13's libraries and no packages; there: tar xf FILE && gpu/gpu.sh A
# --dry-run looks for KoZeRO's programs and their libraries, plans each deck with its keys, and launches nothing.
# BUILD names the build folder of the preset cuda with KOZERO_TESTS=ON (default: build/cuda), HOST the host's kozero,
# OUT the folder for summary.txt and a log per call (default: gpu-out), KOZERO_PEER_PYTHON a python with torch (default:
# python3). Runs are written to gpu-work.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${BUILD:-$root/build/cuda}
host=${HOST:-$root/build/release/kozero}
decks=$here/bench
out=$(realpath -m "${OUT:-gpu-out}")
python=${KOZERO_PEER_PYTHON:-python3}
libraries=
if [[ -d $here/programs ]]; then  # unpacked from a bundle
  build=$here/programs host=$here/programs/kozero
  libraries=$here/lib
  export PATH=$here/programs:$PATH
fi
kozero=$build/kozero-cuda
bench=$build/kozero-bench-cuda  # which `kozero-cuda bench` starts
deck=$decks/gpt2_124m_f32.toml
timed_deck=$PWD/gpu-work/tokens.toml  # the same with a shard of tokens: a GPU waits for synthetic ones
dry=false
call=
call_begin=0
readonly kCallSeconds=520

die() {
  echo "gpu.sh: $*" >&2
  exit 2
}

# Initial values are computed on the host before the first step, by all its cores.
export OMP_PROC_BIND=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}

program() { find "$build" -name "$1" -type f -perm -u+x | head -n 1; }

# The folders of CUDA's libraries if pip installed them.
pip_libraries() {
  "$python" -c 'import glob, site; print(":".join(p for d in site.getsitepackages() + [site.getusersitepackages()] for p in
sorted(glob.glob(d + "/nvidia/*/lib"))))' 2>/dev/null
}

# Only KoZeRO's programs get that path, since PyTorch has its own.
ours() { env LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"; }

ranks() {
  local n=$1 launcher=(mpiexec)
  shift
  if ours mpiexec --version 2>/dev/null | grep -qi hydra; then launcher+=(-launcher fork -hosts localhost); fi
  OMP_NUM_THREADS=$((OMP_NUM_THREADS / n > 0 ? OMP_NUM_THREADS / n : 1)) ours "${launcher[@]}" -n "$n" "$@"
}

say() { echo "       $*" | tee -a "$out/summary.txt"; }

# rehearsed NAME COMMAND...: whether the command could run: its programs exist and accept their keys.
rehearsed() {
  local name=$1 word keys=() status=0
  shift
  [[ $1 != step ]] || set -- "$kozero" bench step "${step_keys[@]}" "${@:2}"
  for word in "$@"; do
    if [[ $word == /* && $word != *=* && ! -e $word ]]; then
      echo "$name: $word is not there"
      status=1
    elif [[ -z $word ]] && ! grep -qs 'KOZERO_TESTS:BOOL=OFF' "$build/CMakeCache.txt"; then
      echo "$name: its test program is not built"
      status=1
    fi
    [[ $word != [a-z]*.[a-z]*=* ]] || keys+=("$word")
  done
  if [[ $1 == ranks ]] && ! type -P mpiexec >/dev/null; then
    echo "$name: mpiexec is not there"
    status=1
  fi
  for word in "$deck" "$timed_deck"; do
    [[ " $* " != *" $word "* ]] || ours "$host" plan "$word" "${keys[@]}" run.device=host >/dev/null || status=1
  done
  return $status
}

# check NAME SECONDS COMMAND...: runs the command for at most so long, and at most for the rest of the call's time. Its
# output goes to the call's log, and a line to the summary.
check() {
  local name=$1 limit=$2 begin=$SECONDS status=0 verdict=ok left=$((kCallSeconds - SECONDS + call_begin))
  shift 2
  if ((left <= 0)); then
    printf '%-6s %s\n' SKIPPED "$name: the call has used its $kCallSeconds s" | tee -a "$out/summary.txt"
    return 0
  fi
  ((limit < left)) || limit=$left
  echo "---- $name: $*" >>"$out/$call.log"
  if $dry && [[ $1 != linked ]]; then
    rehearsed "$name" "$@" >"$name.log" 2>&1 || status=$?
  else
    # timeout cannot run a function, but a shell that has the functions. No pipe, which a left-over process would keep
    # open.
    timeout --kill-after=10 "$limit" bash -c '"$@"' check "$@" >"$name.log" 2>&1 </dev/null || status=$?
  fi
  cat "$name.log" >>"$out/$call.log"
  case $status in
    0) ;;
    124 | 137) verdict="HUNG after $limit s" ;;
    *) verdict=FAILED ;;
  esac
  [[ $verdict == ok ]] || tail -n 15 "$name.log"
  printf '%-6s %-40s %4d s\n' "$verdict" "$name" $((SECONDS - begin)) | tee -a "$out/summary.txt"
  return 0
}

# quote NAME PATTERN: the lines of a check's output that the summary shows.
quote() { $dry || while IFS= read -r line; do say "$line"; done < <(grep -E "$2" "$1.log" | head -n 8); }

# The deck of timed steps, and its shard of random tokens in llm.c's format.
write_timed_deck() {
  "$python" - "$PWD/tokens.bin" <<'PYTHON'
import array, random, struct, sys
count = 1 << 20
tokens = array.array("H", random.Random(1).choices(range(32000), k=count))
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + tokens.tobytes())
PYTHON
  sed "s|^synthetic = true|tokens = ['$PWD/tokens.bin']|" "$deck" >"$timed_deck"
}

# The libraries of the programs; fails if one is missing. A machine without a device has no libcuda.
linked() {
  local name missing status=0
  for name in "$@"; do
    missing=$(ours ldd "$name" 2>&1 | grep 'not found' | grep -v 'libcuda\.so')
    [[ -z $missing ]] || { echo "$name: $missing"; status=1; }
  done
  ours ldd "$1" | grep -E 'cublas|cudart|nccl|mpi' || true
  return $status
}

opens_cudnn() {
  ours "$python" -c 'import ctypes, sys; print(ctypes.CDLL(sys.argv[1]))' "${KOZERO_CUDNN_LIBRARY:-libcudnn.so.9}"
}

step_keys=("$timed_deck" model.seq=1024 train.precision=bf16)
step() { ours "$kozero" bench step "$timed_deck" model.seq=1024 train.precision=bf16 "$@"; }
batch() { echo "train.global_batch=$1 train.micro_batch=$1"; }

# Before any call: every program finds its libraries, and cuDNN can be opened.
libraries_are_there() {
  local name programs=("$kozero" "$bench")
  for name in $kTests; do name=$(program "test_$name") && programs+=(${name:+"$name"}); done
  check libraries 60 linked "${programs[@]}"
  check cudnn 60 opens_cudnn
  [[ $(grep -cE '^ok *(libraries|cudnn) ' "$out/summary.txt") == 2 ]] ||
    die "a library is missing (above): install cuBLASLt, cuDNN 9 and python3, or name their folder in LD_LIBRARY_PATH"
}

# Ends the call if there is no GPU, the driver is too old, or kernels read other bytes than the host wrote: then no
# other check can pass.
call_A() {
  local test
  check device 20 nvidia-smi
  check arguments 60 ours "$(program test_element_kernels)" 'a kernel reads each captured value*'
  $dry || grep -qE '^ok *arguments ' "$out/summary.txt" ||
    die "kernels do not run here, or not with the host's layout: see arguments.log"
  for test in element_kernels row_kernels matmul attention cross_entropy product_tuning; do
    check "kernels.$test" 120 ours "$(program "test_$test")"
  done
  check model.gradients 120 ours "$(program test_model_gradients)"
  check distributed.streams 60 ours "$(program test_device_stream)"
  check banner 90 ours "$kozero" train "${step_keys[@]}" run.steps=2 $(batch 8) run.dir=banner
  quote banner '^(precision|placement|memory plan|step 2)'
}

# losses FILE: the steps and losses of metrics.jsonl.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\).*/\1 \2/p' "$1"; }

# alike BOUND A B: the losses of two runs differ by no more than BOUND, relative.
alike() {
  paste <(losses "$2/metrics.jsonl") <(losses "$3/metrics.jsonl") | awk -v bound="$1" '
    { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%d losses differ by at most %.2g of theirs\n", NR, most; exit !(NR == 20 && most <= bound) }'
}

call_B() {
  local b repeats precision bound
  for b in 8 32 64; do
    for repeats in true false; do
      check "step.$b.deterministic-$repeats" 80 step $(batch $b) run.deterministic=$repeats --runs 10
      quote "step.$b.deterministic-$repeats" 'tokens/s|idle share|waited for kernels|^wait |^(kozero|Kokkos)::[^%]*$'
    done
  done
  check nccl.one-rank 60 ours "$kozero" train "${step_keys[@]}" run.steps=3 zero.stage=3 comm.backend=nccl $(batch 8) \
    run.dir=nccl
  quote nccl.one-rank '^(placement|step 3)'
  while read -r precision bound; do
    local keys=(run.steps=20 model.preset=none model.layers=4 model.dim=256 model.heads=4 model.vocab=1003
      train.precision="$precision")
    check "host.$precision.gpu" 60 ours "$kozero" train "$deck" "${keys[@]}" run.dir="gpu-$precision"
    check "host.$precision.host" 60 ours "$host" train "$deck" "${keys[@]}" run.device=host run.dir="host-$precision"
    $dry || check "host.$precision.alike" 10 alike "$bound" "gpu-$precision" "host-$precision"
    quote "host.$precision.alike" differ
  done <<<$'f32 1e-5\nbf16 5e-3'
}

call_C() {
  check bench.kernels 150 ours "$kozero" bench kernels "${step_keys[@]}" $(batch 32) --runs 9
  $dry || cat bench.kernels.log
  check tune 270 ours "$kozero" bench tune "${step_keys[@]}" $(batch 32) --runs 5 --out tuned.toml
  quote tune 'products of a step|whole step'
  check step.tuned 60 step $(batch 32) $($dry || echo run.tuning=tuned.toml) --runs 10
  quote step.tuned 'tokens/s|idle share'
}

llama=(model.preset=none model.arch=llama model.layers=24 model.dim=1024 model.heads=16 model.kv_heads=4 model.ffn=4096
  model.vocab=32000)

# beside NAME BATCH "TORCH ARGUMENTS" KEY...: a step of KoZeRO, then one of PyTorch.
beside() {
  local name=$1 size=$2 arguments=$3
  shift 3
  check "ours.$name" 90 step $(batch "$size") --runs 10 "$@"
  quote "ours.$name" 'tokens/s'
  check "torch.$name" 150 "$python" "$decks/torch_gpt.py" --device cuda --compile --dtype bf16 --seq 1024 --steps 20 \
    --warmup 5 --batch "$size" $arguments
  quote "torch.$name" tokens_per_s
}

call_D() {
  beside 124m.64 64 ''
  beside 124m.32 32 ''
  beside llama.32 32 '--arch llama --layers 24 --dim 1024 --heads 16 --kv-heads 4 --vocab 32000 --ffn 4096' \
    "${llama[@]}"
  beside 1558m.8 8 '--layers 48 --dim 1600 --heads 25' model.preset=gpt2-1558m
}

# planned_and_measured LOG: both, and their difference.
planned_and_measured() {
  sed -n 's/.*planned \([0-9.]*\) MiB.*peak GPU memory \([0-9.]*\) MiB.*/\1 \2/p' "$1" |
    awk '{ printf "planned %.0f MiB, measured %.0f MiB: %+.1f %%\n", $1, $2, 100 * ($2 / $1 - 1) }'
}

# refused LOG COMMAND...: the command fails, and prints that memory is the reason.
refused() { ! ours "${@:2}" >"$1" 2>&1 && grep 'of GPU memory' "$1"; }

call_E() {
  local n test
  check verify.shm 60 ranks 2 "$kozero" verify "$deck" model.seq=128 train.precision=bf16 --steps 3
  check memory.run 60 ours "$kozero" train "${step_keys[@]}" run.steps=3 $(batch 8) run.dir=memory
  $dry || say "$(planned_and_measured memory.run.log)"
  check memory.refusal 30 refused large.log "$kozero" train "$deck" model.preset=llama-13b run.dir=large
  check nccl.mock 60 ranks 4 "$(program test_nccl)"
  for n in 1 2 3 4; do check "ladder.$n" 120 ranks $n "$(program test_ladder)"; done
  for test in attention cross_entropy row_kernels; do
    check "sanitizer.$test" 90 ours compute-sanitizer --error-exitcode 9 "$(program "test_$test")" \
      'attention repeats*,cross-entropy agrees*,cross-entropy by blocks*,embedding*,a vocabulary in*,layernorm*'
  done
  check ladder.nccl 120 ranks 4 "$(program test_ladder_nccl)"
}

readonly kTests='row_kernels element_kernels matmul attention cross_entropy product_tuning model_gradients device_stream
  ladder nccl ladder_nccl'

# pack FILE: stripped programs, their libraries except the machine's C library and NVIDIA's, decks and this script.
pack() {
  local file=$1 folder=gpu-bundle/gpu name
  set -e
  rm -rf gpu-bundle
  mkdir -p "$folder/programs" "$folder/lib"
  local programs=("$kozero" "$bench" "$host")
  for name in $kTests; do programs+=("$(program "test_$name")"); done
  for name in "${programs[@]}"; do
    [[ -x $name ]] || die "the programs are not all built; docs/gpu.md has the commands (KOZERO_MARCH, KOZERO_TESTS)"
  done
  for name in "$build" "$(dirname "$host")"; do
    grep -qs 'KOZERO_MARCH:STRING=x86-64-v3' "$name/CMakeCache.txt" ||
      die "$name is not built for other processors than this one: configure it with -DKOZERO_MARCH=x86-64-v3"
  done
  cp "${programs[@]}" "$folder/programs"
  find "$build" -name 'libkozero_*.so' -exec cp {} "$folder/lib" \;
  for name in mpiexec.hydra hydra_pmi_proxy; do
    cp "$(command -v $name)" "$folder/programs" || die "MPICH's $name is not here"
  done
  ln -sf mpiexec.hydra "$folder/programs/mpiexec"
  strip "$folder"/programs/test_* "$folder"/programs/kozero*
  ldd "$folder"/programs/* 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libcuda|libcublas[^/]*|libcudart|libcudnn[^/]*|libnccl)\.so' |
    xargs -I {} cp -L {} "$folder/lib"
  cp -r "$here/bench" "$folder/bench"
  cp "$here/gpu.sh" "$folder/gpu.sh"
  tar --create --file "$file" --use-compress-program 'xz -T0 -6' --directory gpu-bundle gpu
  rm -rf gpu-bundle
  local mebibytes=$(($(stat -c %s "$file") >> 20))
  echo "$file: $mebibytes MiB"
  ((mebibytes < 60)) || die "$file has $mebibytes MiB; a machine may take 64"
}

finish() {
  echo "---- summary: $(grep -c '^ok' "$out/summary.txt") ok, $(grep -cE '^(FAILED|HUNG)' "$out/summary.txt") not; logs are in $out"
  cat "$out/summary.txt"
}

main() {
  local calls=() name
  while (($# > 0)); do
    case $1 in
      --dry-run) dry=true ;;
      [A-E]) calls+=("$1") ;;
      *) die "'$1' is no call; accepted are --dry-run, A, B, C, D, E, or bundle FILE" ;;
    esac
    shift
  done
  ((${#calls[@]} > 0)) || calls=(A B C D E)
  for name in "$kozero" "$bench"; do
    [[ -x $name ]] || die "$name is not built: ./kozero.sh build --preset cuda"
  done
  local of_pip
  of_pip=$(pip_libraries)
  libraries=${libraries:+$libraries:}${of_pip:+$of_pip:}/usr/local/cuda/lib64
  rm -rf gpu-work
  mkdir -p "$out" gpu-work
  $dry && out=$out/dry-run && mkdir -p "$out"
  : >"$out/summary.txt"
  cd gpu-work || die "gpu-work cannot be made here"
  trap finish EXIT
  write_timed_deck || die "$python cannot write tokens.bin"
  # The shells of check() call these.
  export build host decks out python libraries kozero deck timed_deck
  export -f ours ranks linked opens_cudnn step losses alike refused
  call=libraries
  : >"$out/$call.log"
  libraries_are_there
  for call in "${calls[@]}"; do
    call_begin=$SECONDS
    : >"$out/$call.log"
    "call_$call"
  done
  ! grep -qE '^(FAILED|HUNG)' "$out/summary.txt"
}

if [[ ${1:-} == bundle ]]; then
  pack "$(realpath -m "${2:?gpu.sh bundle FILE}")"
else
  main "$@"
fi
