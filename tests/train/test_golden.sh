#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_golden.sh KOZERO MPIEXEC INPUTS CASE: 20 steps of a small GPT-2 and a small Llama, an evaluation and 60 generated
# tokens have the bits of golden.txt, on every processor with fused multiply-adds.
#   f32         also with the units of processors without AVX-512
#   portable    bf16 with run.products = "portable", and fp16: the same
#   print       writes golden.txt anew instead of comparing, for a change that is to change bits
golden=$(cd "$(dirname "$0")" && pwd)/golden.txt
. "$(dirname "$0")/../commands/cli_case.sh"
unset OMP_NUM_THREADS OMP_PROC_BIND

# Dropout, accumulation over micro-steps, clipping, warm-up and weight decay. The Llama's extents fill no block.
job="run.steps=20 data.text=[\"text\"] data.tokenizer=bytes train.global_batch=6 train.micro_batch=2 train.eval_every=20
     checkpoint.every=20 optim.warmup_steps=4 optim.lr=3e-3 train.grad_clip=0.5 optim.weight_decay=0.1 log.every=20"
gpt2_keys="model.layers=2 model.dim=64 model.heads=2 model.seq=64 model.dropout=0.1"
llama_keys="model.arch=llama model.layers=2 model.dim=36 model.heads=3 model.kv_heads=1 model.seq=27"

# what_of NAME KEY...: trains, and prints what the run computed.
what_of() {
  local name=$1
  shift
  rm -rf run
  # shellcheck disable=SC2086
  "$kozero" train "$inputs/quickstart.toml" run.dir=run $job "$@" >out.txt 2>&1 || { cat out.txt; return 1; }
  python3 - "$name" <<'PYTHON'
import hashlib, json, sys
steps = [json.loads(line) for line in open("run/metrics.jsonl")]
trained = [step for step in steps if "grad_norm" in step]
hashes = json.load(open("run/step_000000020/manifest.json"))["datasets"]
texts = {"first loss": repr(trained[0]["loss"]), "last loss": repr(trained[-1]["loss"]),
         "last norm": repr(trained[-1]["grad_norm"]),
         "losses and norms": hashlib.sha256(repr([(s["loss"], s["grad_norm"]) for s in trained]).encode()).hexdigest(),
         "validation": repr([s["val_loss"] for s in steps if s.get("val_loss")]),
         "state": hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()}
for what, text in texts.items():
    print(f"{sys.argv[1]}, {what}: {text}")
PYTHON
  for temperature in 0 1; do
    text_of "$kozero" generate run --prompt "the quick" --tokens 60 --past-end --seed 5 --temperature "$temperature" >said.txt
    echo "$name, generated at temperature $temperature: $(sha256sum <said.txt | cut -d ' ' -f 1)"
  done
}

f32_lines() {
  # shellcheck disable=SC2086
  what_of "gpt2 f32" $gpt2_keys
  # shellcheck disable=SC2086
  what_of "llama f32" $llama_keys
}
portable_lines() {
  # shellcheck disable=SC2086
  what_of "gpt2 bf16" $gpt2_keys train.precision=bf16 run.products=portable
  # shellcheck disable=SC2086
  what_of "llama fp16" $llama_keys train.precision=fp16 run.products=portable
}

# compare PATTERN LINES: the lines of golden.txt with PATTERN are those of the command.
compare() {
  grep -E "$1" "$golden" >wanted.txt
  "$2" >got.txt 2>&1
  if ! diff wanted.txt got.txt >differs.txt; then
    echo "FAILED: other bits than golden.txt (<) with KOZERO_TILE_UNITS=${KOZERO_TILE_UNITS:-}:"
    cat differs.txt
    failures=$((failures + 1))
  fi
}

on_all_units() {
  compare "$1" "$2"
  KOZERO_TILE_UNITS=AVX2 compare "$1" "$2"
}

f32() { on_all_units '^[a-z0-9]+ f32,' f32_lines; }
portable() { on_all_units '^[a-z0-9]+ (bf16|fp16),' portable_lines; }
print() { { f32_lines; portable_lines; } >"$golden"; }

if [ "$(uname -m)" = x86_64 ] && ! grep -qw fma /proc/cpuinfo; then
  echo "$case: not compared, since this processor has no fused multiply-add"
  exit 0
fi
make_text
run_case
