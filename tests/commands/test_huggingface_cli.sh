#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_huggingface_cli.sh KOZERO MPIEXEC INPUTS CASE: checkpoints and Hugging Face folders are inspected, compared,
# evaluated, fine-tuned and exported. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"
tokenizers=$inputs/../tests/fixtures/tokenizers

# A run of 12 steps with a checkpoint every 6 steps; and a deck that fine-tunes without model keys.
make_run() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=6 "$@"
}

# Reads the loss of the report in out.txt, to compare it with other evaluations of the same text ($near on other numbers
# of ranks).
read_loss() {
  local digits
  digits=$(sed -n 's/.*"loss":\([0-9]*\.[0-9]\{9,\}\).*/\1/p' out.txt)
  loss=${digits:-no loss in the report},
  near=${digits%???}
}

make_deck() {
  cat >tune.toml <<'DECK'
[data]
text = ["text"]
[run]
dir = "tuned"
steps = 3
[train]
global_batch = 6
micro_batch = 2
[optim]
schedule = "constant"
warmup_steps = 0
[checkpoint]
every = 1
keep = 0
DECK
}

inspect_tensors() {
  make_run
  expect 0 'step         12, 1152 tokens' "$kozero" inspect run
  expect 0 '^/optimizer/exp_avg_sq/wte.weight  f32  \(256, 16\)$' "$kozero" inspect run/step_000000006
  also '^tokenizer    bytes '
  also '^stage = 2  # '
  lines 48 '  f32  \('
  expect 0 '^/parameters/wpe.weight  f32  \(16, 16\)$' "$kozero" inspect run --tensors '/parameters/w?e*'
  lines 2 '  f32  \('
  expect 0 '^/parameters/ln_f.weight  f32  \(16\)  norm [0-9.]+  min 0\.[0-9]+  max 1\.[0-9]+  non-finite 0$' \
    "$kozero" inspect run/weights.h5 --stats
  expect 0 '"norm":[0-9.]+,' "$kozero" inspect run --stats --json
  grep '"norm"' out.txt >first.txt
  for ranks in 2 3; do
    expect 0 '"non_finite":0' on $ranks inspect run --stats --json
    grep '"norm"' out.txt >again.txt
    expect 0 same sh -c 'cmp first.txt again.txt && echo same'
  done
  expect 0 '^verified     run/step_000000012: every byte of 3 files, .* is as it was written$' on 2 inspect run --verify
  lines 1 ''
  expect 2 'tensors x\*: fits no tensor; names are like /parameters/h.0.attn.c_attn.bias$' on 2 inspect run --tensors 'x*'
  expect 0 '^verified     run/weights.h5: every byte is as it was written$' on 2 inspect run/weights.h5 --verify
  expect 2 'text: nothing to inspect; accepted are a checkpoint' "$kozero" inspect text
  # Only commands that open the state compare its bytes first.
  printf x | dd of=run/step_000000012/state.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  expect 0 'step         12' "$kozero" inspect run/step_000000012
  for flag in --verify --stats "--diff run/step_000000006"; do
    # shellcheck disable=SC2086
    expect 3 'state.h5: bytes 0 to .* are not what the manifest says' on 2 inspect run/step_000000012 $flag
  done
}

inspect_differences() {
  make_run
  # shellcheck disable=SC2086
  expect 0 'output in run-2' on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=6 zero.stage=3
  expect 0 '^no difference in 48 tensors$' "$kozero" inspect run --diff run-2
  also '^deck zero.stage: 2 and 3$'
  expect 0 '^no difference in 16 tensors$' on 3 inspect run --diff run/weights.h5 --tensors '/parameters/*'
  expect 1 'error: run/step_000000012 and run/weights.h5 differ in 32 of 48 tensors$' on 3 inspect run --diff run/weights.h5
  also '^/optimizer/exp_avg/wte.weight: only in run/step_000000012$'
  expect 1 '^step: 6 and 12$' "$kozero" inspect run/step_000000006 --diff run/step_000000012
  also '^/parameters/wpe.weight: first at \(0, 0\): -?0\.[0-9]+ and -?0\.[0-9]+; 256 of 256 differ, by at most 0\.0'
  cp out.txt first.txt
  expect 1 'differ in 48 of 48' on 3 inspect run/step_000000006 --diff run/step_000000012
  cp out.txt again.txt
  expect 0 same sh -c 'sort first.txt >a; sort again.txt >b; cmp a b && echo same'
  # A single changed bit of one element, in a file without KoZeRO's header: inspect finds it.
  expect 0 'gpt2 for transformers' "$kozero" export run/weights.h5 hf
  header=$(od -An -tu8 -N8 hf/model.safetensors | tr -d ' ')
  begin=$(head -c $((8 + header)) hf/model.safetensors | tail -c +9 | sed 's/.*ln_f\.bias":{[^}]*"data_offsets":\[\([0-9]*\).*/\1/')
  place=$((8 + header + begin + 12))
  byte=$(od -An -tu1 -j $place -N1 hf/model.safetensors | tr -d ' ')
  # shellcheck disable=SC2059
  printf "\\$(printf %03o $((byte ^ 1)))" | dd of=hf/model.safetensors bs=1 seek=$place conv=notrunc 2>/dev/null
  expect 0 '^bit: gpt2' "$kozero" import hf bit
  expect 1 '^/parameters/ln_f.bias: first at \(3\): .*; 1 of 16 differ, by at most' \
    "$kozero" inspect run/weights.h5 --diff bit/weights.h5
  also 'differ in 1 of 16 tensors'
  expect 1 '"first":\[3\],"values":\["-?0' "$kozero" inspect run/weights.h5 --diff bit/weights.h5 --json
  # A bit changed by a bad disk is found by the header's checksum.
  printf x | dd of=run/weights.h5 bs=1 seek=9000 conv=notrunc 2>/dev/null
  expect 3 'run/weights.h5: bytes 4096 to [0-9]* are not what its header says' on 2 eval run/weights.h5
}

# eval and generate of a published folder, in any stage, without an import; nothing is written into the folder.
read_folder() {
  make_run data.tokenizer=bpe:300
  expect 0 '^hf: 16 tensors, .* of f32 in 1 file, gpt2 for transformers$' "$kozero" export run/step_000000012 hf
  also '^from run/step_000000012 \(checkpoint\)$'
  ls hf >before.txt
  expect 0 'given data   loss' "$kozero" eval run 'data.text=["text"]' --json
  read_loss
  expect 0 "\"loss\":$loss" "$kozero" eval hf 'data.text=["text"]' zero.stage=3 --json
  expect 0 "\"loss\":$near" on 2 eval hf/ 'data.text=["text"]' zero.stage=1 --json
  expect 0 "\"loss\":$near" on 3 eval hf 'data.text=["text"]' zero.stage=3 --json
  expect 0 "\"loss\":$loss" "$kozero" eval run/step_000000012 'data.text=["text"]' --json
  expect 0 '^line' text_of "$kozero" generate run --prompt line --tokens 20 --temperature 0
  cp out.txt first.txt
  expect 0 "$(cat first.txt)" text_of on 2 generate hf zero.stage=3 --prompt line --tokens 20 --temperature 0
  expect 0 same sh -c 'ls hf | cmp - before.txt && echo same'
  expect 2 'hf: no data come with it: give some' on 2 eval hf
  mv hf/tokenizer.json kept.json
  expect 2 'no text without a tokenizer: hf has no tokenizer.json and no tokenizer.model: give data.tokens, or data.tokenizer=FILE$' \
    on 2 eval hf 'data.text=["text"]'
  expect 2 'no text without a tokenizer: hf has no' "$kozero" generate hf
  expect 0 "\"loss\":$loss" "$kozero" eval hf 'data.text=["text"]' data.tokenizer=kept.json --json
  expect 0 "$(cat first.txt)" text_of "$kozero" generate hf --prompt line --tokens 20 --temperature 0 data.tokenizer=kept.json
  echo '{"model": {"type": "WordLevel"}}' >hf/tokenizer.json
  expect 2 'no text without a tokenizer: hf/tokenizer.json: ' "$kozero" generate hf
  head -c 3000 hf/model.safetensors >cut && cp cut hf/model.safetensors
  expect 3 'hf/model.safetensors: .*truncated' on 2 eval hf 'data.text=["text"]'
}

# Fine-tuning: under every stage the weights of step 0 are the file's, bit for bit (a rate of 0 keeps them).
fine_tune_weights() {
  make_run
  make_deck
  expect 0 'hf:' "$kozero" export run hf
  for how in "0 3 run" "1 2 hf" "2 2 run/step_000000012" "3 3 hf"; do
    # shellcheck disable=SC2086
    set -- $how
    rm -rf tuned
    expect 0 '^init         weights of .*, a fresh optimizer$' on "$2" train tune.toml model.init="$3" optim.lr=0 run.steps=1 \
      zero.stage="$1"
    expect 0 '^no difference in 16 tensors$' "$kozero" inspect tuned --diff run/weights.h5 --tensors '/parameters/*'
  done
  expect 0 '^dim = 16  # model.init$' cat tuned/deck.toml
  expect 0 same sh -c 'cmp run/tokenizer.json tuned/tokenizer.json && echo same'
  # One step over the whole text, which consists of full windows, has the loss of eval.
  head -c 8064 text/a.txt >whole.txt
  expect 0 '"tokens":8064}' "$kozero" eval hf 'data.text=["whole.txt"]' data.tokenizer=run/tokenizer.json --json
  read_loss
  expect 0 "\"first_loss\":${near:0:11}" on 2 train tune.toml model.init=hf 'data.text=["whole.txt"]' data.val_fraction=0 \
    train.global_batch=504 run.steps=1 --json
}

# Fine-tuning learns, and resumes from its own checkpoint: checkpoint.resume wins over model.init.
fine_tune_goes_on() {
  make_run data.tokenizer=bpe:300
  make_deck
  expect 0 'w.h5: 16 tensors, .* of f32 in 1 file, with no tokenizer' "$kozero" export run w.h5 --weights-only
  set -- tune.toml model.init=w.h5 data.tokenizer=run/tokenizer.json optim.lr=1e-2
  expect 0 'output in tuned:' on 2 train "$@"
  expect 1 'differ in 16 of 16' "$kozero" inspect tuned/weights.h5 --diff w.h5
  mkdir whole && mv tuned/step_000000003 whole/
  rm tuned/weights.h5
  expect 0 '^resume       after step 2' on 2 train "$@" checkpoint.resume=auto
  also '^note         model.init is not read: checkpoint.resume wins$'
  expect 0 '^no difference in 48 tensors$' "$kozero" inspect tuned --diff whole/step_000000003
  expect 0 'validation   loss' "$kozero" eval tuned
  # All stages, and the plan, also start from it.
  expect 0 'all stages agree bit for bit' on 2 verify tune.toml model.init=run
  expect 0 '"stage":3' "$kozero" plan tune.toml model.init=run --json
  # The deck is read before Kokkos is initialized. Using an execution space then is an error that Kokkos reports.
  for command in 'ranks train' plan; do
    expect 0 '^0$' sh -c "'$kozero' $command tune.toml model.init=run 2>&1 >/dev/null | wc -c"
  done
}

fine_tune_refusals() {
  make_run data.tokenizer=bpe:300
  make_deck
  expect 0 'hf:' "$kozero" export run hf
  expect 2 'model.init = "hf": the deck disagrees with it: model.dim is 32 and was 16; model.head_dim is 16 and was 8; model.seq is 8 and was 16; keys that are left out are taken from there$' \
    on 2 train tune.toml model.init=hf model.dim=32 model.seq=8
  expect 2 'the deck disagrees with it: model.arch is "llama" and was "gpt2"' "$kozero" train tune.toml model.init=run model.arch=llama
  expect 2 'data.tokenizer = "bpe:301": its 301 ids are more than the 300 of model.init = "hf"' \
    on 2 train tune.toml model.init=hf data.tokenizer=bpe:301
  expect 2 'nowhere: nothing is there; give a run.s folder, a weights file.*; it is model.init; model.init=random needs no' \
    on 2 train tune.toml model.init=nowhere
  mkdir peft && echo '{}' >peft/adapter_config.json
  for command in 'eval peft' 'plan tune.toml model.init=peft'; do
    # shellcheck disable=SC2086
    expect 2 'peft: it holds PEFT.s adapters, which need their base: give that, and the adapters by --adapter, or by model.lora.init' \
      "$kozero" $command
  done
  rm hf/tokenizer.json
  expect 2 'model.init = "hf": no tokenizer comes with it: hf has no tokenizer.json and no tokenizer.model: give data.tokenizer, or data.tokens' \
    on 2 train tune.toml model.init=hf
  printf x | dd of=run/step_000000012/state.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  expect 3 'run/step_000000012/state.h5: bytes 0 to' on 2 train tune.toml model.init=run/step_000000012
  rm run/weights.h5
  expect 3 'run/step_000000012/state.h5: bytes 0 to' on 2 eval run
  rm -r run/step_000000012
  expect 0 'weights of run/step_000000006 \(checkpoint\)' on 2 train tune.toml model.init=run
}

export_kinds() {
  make_run data.tokenizer=bpe:300
  expect 0 '^half: 16 tensors, .* of bf16 in [2-9] files, gpt2' "$kozero" export run half --dtype bf16 --max-shard-size 5KiB
  expect 0 '"dtype": "bfloat16"' cat half/config.json
  expect 0 '"dtype":"BF16"' cat half/model-00001-of-*
  expect 0 'f16 in 1 file' "$kozero" export run/step_000000006 half2 --dtype f16
  expect 0 'in 1 file' "$kozero" export run/step_000000006 half3 --dtype fp16
  expect 0 same sh -c 'cmp half2/model.safetensors half3/model.safetensors && rm -r half3 && echo same'
  expect 0 'half-run: gpt2' "$kozero" import half half-run
  # Values are rounded once; the second export changes nothing.
  expect 0 'bf16' "$kozero" export half-run again --dtype bf16 --max-shard-size 5KiB
  for shard in half/model*; do expect 0 same sh -c "cmp $shard again/${shard#half/} && echo same"; done
  expect 1 'differ in 1[0-6] of 16 tensors' "$kozero" inspect run/weights.h5 --diff half-run/weights.h5
  expect 0 '^w.h5: 16 tensors' "$kozero" export run/step_000000012 w.h5 --weights-only
  expect 0 '^no difference in 16 tensors$' "$kozero" inspect w.h5 --diff run/weights.h5
  expect 0 'wte.weight +Dataset \{300, 16\}' h5ls -r w.h5
  expect 2 'w.h5: there is something already' "$kozero" export run w.h5 --weights-only
  expect 0 '^w.h5: 16 tensors' "$kozero" export run w.h5 --weights-only --force
  expect 0 'f32 in 1 file' "$kozero" export run half --force
  expect 0 same sh -c '[ -f half/model.safetensors ] && [ "$(ls -d half* | tr "\n" " ")" = "half half-run half2 " ] && echo same'
  expect 2 'half-run: --force replaces an exported model, and this is none' "$kozero" export run half-run --force
  expect 2 'weights-only writes one file of f32' "$kozero" export run x --weights-only --dtype f16
  expect 2 'dtype f64: accepted are f32, bf16, f16' "$kozero" export run x --dtype f64
  expect 2 'half: it is a Hugging Face folder; import it first' "$kozero" export half x
  printf x | dd of=run/step_000000012/state.h5 bs=1 seek=3000 conv=notrunc 2>/dev/null
  expect 3 'state.h5: bytes 0 to' "$kozero" export run/step_000000012 x
  expect 0 no sh -c 'ls x x.partial 2>/dev/null || echo no'
}

# Writes four bytes over element I of a vector of hf, as octal escapes: put_value NAME I BYTES.
put_value() {
  local header begin
  header=$(od -An -tu8 -N8 hf/model.safetensors | tr -d ' ')
  begin=$(head -c $((8 + header)) hf/model.safetensors | tail -c +9 |
    sed "s/.*\"transformer\\.$1\":{[^}]*\"data_offsets\":\\[\\([0-9]*\\).*/\\1/")
  # shellcheck disable=SC2059
  printf "$3" | dd of=hf/model.safetensors bs=1 seek=$((8 + header + begin + 4 * $2)) conv=notrunc 2>/dev/null
}

# Weights that are not finite are refused by every command that reads them, and so are results that are not.
not_finite() {
  make_run data.tokenizer=bpe:300
  make_deck
  expect 0 'gpt2 for transformers' "$kozero" export run hf
  put_value h.0.mlp.c_fc.bias 5 '\000\000\300\177'
  local refused='^\[rank 0\] error: hf/model.safetensors: tensor transformer.h.0.mlp.c_fc.bias: element \(5\) is nan; accepted are finite numbers'
  expect 3 "$refused" on 2 eval hf 'data.text=["text"]' zero.stage=3
  expect 3 "$refused" "$kozero" generate hf --prompt line --tokens 4 train.precision=bf16
  expect 3 "$refused" "$kozero" import hf run2
  expect 3 "$refused" on 2 train tune.toml model.init=hf
  expect 3 "$refused" "$kozero" train tune.toml model.init=hf model.lora.rank=2 model.base_dtype=int8
  expect 0 no sh -c 'ls run2 run2.partial 2>/dev/null || echo no'
  # Finite in f32 and infinite in fp16.
  put_value h.0.mlp.c_fc.bias 5 '\000\000\000\000'
  put_value ln_f.weight 3 '\000\044\164\111'
  expect 0 'given data   loss' on 2 eval hf 'data.text=["text"]'
  local overflows='though every weight is finite: numbers computed from the weights overflow; f32 \(train.precision\)'
  expect 6 "hf: the loss is -?nan, $overflows" on 2 eval hf 'data.text=["text"]' train.precision=fp16
  lines 0 'given data   loss'
  expect 6 'a logit of the next token is not finite, though every weight is: numbers computed from the weights overflow; f32' on 2 generate hf --prompt line --tokens 4 train.precision=fp16
  echo '{"context": "line", "endings": [" 1", " 2"], "label": 0}' >items.jsonl
  expect 6 "a log-likelihood is -?nan, $overflows" on 2 eval hf --choices items.jsonl train.precision=fp16
  # An update whose result overflows is in no checkpoint and no weights file.
  # shellcheck disable=SC2086
  expect 6 'the checkpoint of step 1: tensor .*: element \([0-9, ]+\) is (nan|-?inf): an update overflowed, and nothing is saved; resume from an older checkpoint' \
    on 2 train "$inputs/quickstart.toml" $tiny optim.kind=sgd optim.lr=1e300 optim.warmup_steps=0 optim.schedule=constant \
    train.grad_clip=0 checkpoint.every=1 checkpoint.async=false run.dir=diverged
  expect 0 no sh -c 'ls -d diverged/step_* diverged/weights.h5 2>/dev/null || echo no'
}

# Of a single file and shards with an index, the single file counts, and a note says so; keys that nobody reads are named.
notes_on_folders() {
  make_run data.tokenizer=bpe:300
  make_deck
  expect 0 'hf:' "$kozero" export run hf
  expect 0 'in 2 files' "$kozero" export run/step_000000006 shards --max-shard-size 20KiB
  cp shards/model-* shards/model.safetensors.index.json hf/
  sed -i '1s/{/{"final_logit_softcapping": 30.0, "logit_scale": 2, "attn_pdrop": 0.5,/' hf/config.json
  local note='^note: hf/config.json: final_logit_softcapping, logit_scale: not read, and transformers. gpt2 does not read them either'
  expect 0 "$note" "$kozero" import hf run2
  also '^note: hf/model.safetensors: this file is read, as by transformers; hf/model.safetensors.index.json and its files are not read$'
  expect 0 '^no difference in 16 tensors$' "$kozero" inspect run2/weights.h5 --diff run/weights.h5
  expect 0 "$note; hf/model.safetensors: this file is read" on 2 eval hf 'data.text=["text"]'
  lines 1 '^note: '
  expect 0 "$note; hf/model.safetensors: this file is read" "$kozero" generate hf --prompt line --tokens 4
  expect 0 "$note; hf/model.safetensors: this file is read" on 2 train tune.toml model.init=hf
  expect 0 '.' "$kozero" eval shards 'data.text=["text"]'
  lines 0 '^note: '
}

# A SentencePiece model is exported with the weights and imported again.
sentencepiece_folder() {
  make_run data.tokenizer="$tokenizers/bpe.model"
  expect 0 'note: tokenizer.model is a SentencePiece model' "$kozero" export run hf
  expect 0 same sh -c "cmp hf/tokenizer.model '$tokenizers/bpe.model' && echo same"
  expect 0 '"tokenizer_class": "LlamaTokenizer"' cat hf/tokenizer_config.json
  expect 0 '^in: gpt2, 16 tensors of f32 read, .*f32 written$' "$kozero" import hf in
  expect 0 same sh -c "cmp in/tokenizer.model '$tokenizers/bpe.model' && echo same"
  expect 0 '"loss":' "$kozero" eval run 'data.text=["text"]' --json
  read_loss
  expect 0 "\"loss\":$loss" "$kozero" eval in 'data.text=["text"]' --json
  # tokenizer.json is tried first. If KoZeRO cannot read it, the SentencePiece model beside it is used.
  echo '{"model": {"type": "WordLevel"}}' >hf/tokenizer.json
  expect 0 "\"loss\":$loss" "$kozero" eval hf 'data.text=["text"]' --json
}

published_tokenizer() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'vocabulary 405' "$kozero" train "$inputs/quickstart.toml" $tiny run.dir=run "data.tokenizer=$tokenizers/qwen.json"
  expect 0 'x qzq' "$kozero" generate run --prompt 'x qzq' --tokens 3
  # shellcheck disable=SC2086
  expect 0 'vocabulary 500' "$kozero" train "$inputs/quickstart.toml" $tiny run.dir=run2 "data.tokenizer=$tokenizers/bpe.model"
  expect 0 'tokens' "$kozero" eval run2 'data.text=["text"]'
  expect 0 'sentencepiece:500' "$kozero" prepare text out --tokenizer "$tokenizers/bpe.model"
}

run_case
