#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# gpu.sh: all that only a machine with a GPU can show, in parts of less than 10 minutes each, with one summary.
#   tests/gpu.sh [PART...]       run parts on this machine; all of them unless said
#   tests/gpu.sh bundle FILE     pack programs, tests, decks and the libraries they need, for a machine that has a driver, CUDA's
#                                libraries and no packages; there: tar xf FILE && gpu/gpu.sh [PART...]
# Parts:
#   kernels    every kernel against its reference, gradients against differences, the streams and the NCCL double
#   ladder     stages 0-3 bit for bit on 1-4 ranks of one GPU: mpi, shm, and nccl's double
#   host       20 losses of a run on the GPU beside the host's, f32 and bf16
#   memory     planned and measured device memory, to within 2 %
#   bench      kernels at GPT-2 124M's shapes, T = 1024; a step's kernels, its idle share, its one wait
#   tune       every algorithm of cuBLASLt's heuristic for 124M's products, and the speed with the file that comes of it
#   speed      tokens a second and MFU: 124M, 1558M and a Llama of 0.5B, bf16
#   peer       the same beside PyTorch compiled; KOZERO_PEER_PYTHON names a python with torch (python3 unless said)
#   sanitizer  compute-sanitizer on attention's and cross-entropy's tests
# BUILD names the build folder of the preset cuda with KOZERO_TESTS=ON (build/cuda unless said), HOST the host's kozero.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${BUILD:-$root/build/cuda}
host=${HOST:-$root/build/release/kozero}
decks=$here/bench
if [[ -d $here/programs ]]; then  # unpacked from a bundle
  build=$here/programs host=$here/programs/kozero decks=$here/bench
  export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-} PATH=$here/programs:$PATH
fi
kozero=$build/kozero-cuda
deck=$decks/gpt2_124m_f32.toml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_PROC_BIND=false OMP_NUM_THREADS=2

program() { find "$build" -name "$1" -type f -perm -u+x | head -n 1; }

# check NAME COMMAND...: runs it, keeps its output in NAME.log, and adds a line to the summary.
check() {
  local name=$1 begin=$SECONDS status=0
  shift
  "$@" >"$name.log" 2>&1 || status=$?
  if ((status != 0)); then tail -n 15 "$name.log"; fi
  printf '%-6s %-40s %4d s\n' "$([[ $status == 0 ]] && echo ok || echo FAILED)" "$name" $((SECONDS - begin)) | tee -a summary
}

say() { echo "       $*" | tee -a summary; }

ranks() { mpiexec -n "$1" "${@:2}"; }

part_kernels() {
  local test
  for test in row_kernels element_kernels matmul product_tuning attention cross_entropy; do
    check "kernels.$test" "$(program "test_$test")"
  done
  check model.gradients "$(program test_model_gradients)"
  check dist.streams "$(program test_device_stream)"
}

part_ladder() {
  local n
  for n in 1 2 3 4; do check "ladder.$n" ranks $n "$(program test_ladder)"; done
  check ladder.nccl ranks 4 "$(program test_ladder_nccl)"
  check nccl.double ranks 4 "$(program test_nccl)"
  check verify.shm ranks 2 "$kozero" verify "$deck" model.seq=128 train.precision=bf16 --steps 3
}

# losses FILE: step and loss of metrics.jsonl.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\).*/\1 \2/p' "$1"; }

# alike BOUND A B: the losses of two runs differ by no more than BOUND, relative.
alike() {
  paste <(losses "$2/metrics.jsonl") <(losses "$3/metrics.jsonl") | awk -v bound="$1" '
    { d = ($2 - $4) / $4; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "20 losses differ by at most %.2g of theirs\n", most; exit !(NR == 20 && most <= bound) }'
}

part_host() {
  local precision bound
  while read -r precision bound; do
    local keys=(run.steps=20 model.layers=4 model.dim=256 model.heads=4 model.vocab=1003 train.precision="$precision" model.preset=none)
    check "host.$precision.gpu" "$kozero" train "$deck" "${keys[@]}" run.dir="gpu-$precision"
    check "host.$precision.host" "$host" train "$deck" "${keys[@]}" run.device=host run.dir="host-$precision"
    check "host.$precision.alike" alike "$bound" "gpu-$precision" "host-$precision"
    say "$(cat "host.$precision.alike.log")"
  done <<<$'f32 1e-5\nbf16 5e-3'
}

# within: planned and measured memory of a log agree to 2 %.
within() {
  sed -n 's/.*planned \([0-9.]*\) MiB.*at most \([0-9.]*\) MiB.*/\1 \2/p' "$1" | awk '
    { d = $2 / $1 - 1; printf "planned %.0f MiB, measured %.0f MiB: %+.1f %%\n", $1, $2, 100 * d; good = d < 0.02 && d > -0.02 }
    END { exit !good }'
}

part_memory() {
  check memory.run "$kozero" train "$deck" run.steps=3 model.seq=1024 train.global_batch=8 train.micro_batch=8 train.precision=bf16 run.dir=memory
  check memory.within within memory.run.log
  say "$(cat memory.within.log)"
  check memory.refusal bash -c "! '$kozero' train '$deck' model.preset=llama-70b run.dir=large >large.log 2>&1 && grep -q 'of GPU memory' large.log"
}

part_bench() {
  check bench.kernels "$kozero" bench kernels "$deck" model.seq=1024 train.global_batch=32 train.micro_batch=32 train.precision=bf16 --runs 9
  cat bench.kernels.log
  local micro_batch
  for micro_batch in 32 8; do
    check "bench.step.$micro_batch" "$kozero" bench step "$deck" model.seq=1024 train.global_batch=32 train.micro_batch=$micro_batch \
      train.precision=bf16 --runs 10
    check "bench.step.$micro_batch.waits" grep -q 'waited for kernels 1.0 times a step' "bench.step.$micro_batch.log"
    say "$(grep 'idle share' "bench.step.$micro_batch.log")"
  done
  cat bench.step.32.log
}

# speed_of NAME BATCH KEY...: tokens a second, and MFU, of 30 steps of BATCH sequences of 1024 tokens.
speed_of() {
  local name=$1 batch=$2
  shift 2
  check "speed.$name.$batch" "$kozero" train "$deck" run.steps=30 model.seq=1024 train.precision=bf16 train.global_batch="$batch" \
    train.micro_batch="$batch" run.dir="speed-$name-$batch" "$@"
  say "$(grep '^loss' "speed.$name.$batch.log")"
}

part_tune() {
  local keys=(model.seq=1024 train.precision=bf16 train.global_batch=32 train.micro_batch=32)
  check tune.124m "$kozero" bench tune "$deck" "${keys[@]}" --runs 9 --out tuned.toml
  cat tune.124m.log
  check tune.stages "$kozero" verify "$deck" "${keys[@]}" run.tuning=tuned.toml --steps 2
  speed_of tuned 32 run.tuning=tuned.toml
}

llama=(model.preset=none model.arch=llama model.layers=24 model.dim=1024 model.heads=16 model.kv_heads=4 model.ffn=4096 model.vocab=32000)

part_speed() {
  speed_of 124m 16
  speed_of 124m 32
  speed_of 124m 64
  speed_of 124m 64 run.deterministic=false
  speed_of 1558m 8 model.preset=gpt2-1558m
  speed_of 1558m 16 model.preset=gpt2-1558m
  speed_of llama 32 "${llama[@]}"
}

part_peer() {
  local python=${KOZERO_PEER_PYTHON:-python3} case
  while read -r -a case; do
    check "peer.${case[0]}" "$python" "$decks/torch_gpt.py" --device cuda --compile --dtype bf16 --seq 1024 --steps 20 --warmup 5 "${case[@]:1}"
    say "$(tail -n 1 "peer.${case[0]}.log")"
  done <<'CASES'
124m.32 --batch 32
124m.64 --batch 64
1558m.8 --layers 48 --dim 1600 --heads 25 --batch 8
llama.32 --arch llama --layers 24 --dim 1024 --heads 16 --kv-heads 4 --vocab 32000 --ffn 4096 --batch 32
CASES
}

part_sanitizer() {
  local test
  for test in attention cross_entropy row_kernels; do
    check "sanitizer.$test" compute-sanitizer --error-exitcode 9 "$(program "test_$test")" 'attention repeats*,cross-entropy agrees*,embedding*,layernorm*'
  done
}

# pack FILE: stripped programs, what they load but the machine's own C library and NVIDIA's, decks and this script.
pack() {
  local file=$1 folder=$work/gpu program
  mkdir -p "$folder/programs" "$folder/lib"
  find "$build" "$(dirname "$host")/kozero" -type f -perm -u+x -not -path '*/CMakeFiles/*' \( -name 'test_*' -o -name 'kozero*' \) -not -name '*.o' \
    -exec cp {} "$folder/programs" \;
  find "$build" -name 'libkozero_*.so' -exec cp {} "$folder/lib" \;
  for program in mpiexec.hydra hydra_pmi_proxy; do cp "$(command -v $program)" "$folder/programs"; done
  ln -sf mpiexec.hydra "$folder/programs/mpiexec"
  strip "$folder"/programs/test_* "$folder"/programs/kozero* 2>/dev/null
  ldd "$folder"/programs/* 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libcuda|libcublas[^/]*|libcudart|libcudnn[^/]*|libnccl)\.so' |
    xargs -I {} cp -L {} "$folder/lib"
  cp -r "$here/bench" "$folder/bench"
  cp "$here/gpu.sh" "$folder/gpu.sh"
  tar --create --file "$file" --use-compress-program 'xz -T0 -6' --directory "$work" gpu
  ls -l "$file"
}

main() {
  local parts=("$@") part
  ((${#parts[@]} > 0)) || parts=(kernels ladder host memory bench tune speed peer sanitizer)
  for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || { echo "gpu.sh: no part '$part'; see its first lines" >&2; exit 2; }
  done
  for part in "${parts[@]}"; do "part_$part"; done
  echo "---- summary: $(grep -c '^ok' summary) ok, $(grep -c '^FAILED' summary) failed"
  cat summary
  ! grep -q '^FAILED' summary
}

if [[ ${1:-} == bundle ]]; then
  pack "$(realpath -m "${2:?gpu.sh bundle FILE}")"
else
  cd "$work" && main "$@"
fi
