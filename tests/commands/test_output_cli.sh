#!/usr/bin/env bash
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
#
# test_output_cli.sh KOZERO MPIEXEC INPUTS CASE: the output of commands: --json, --help, completion, plots, notes on
# data; the keys, texts and folders that eval accepts. As test_cli.sh.
# shellcheck source=tests/commands/cli_case.sh disable=SC2154
. "$(dirname "$0")/cli_case.sh"

# json COMMAND...: standard output is one JSON object on one line, and nothing else.
json() {
  "$@" >json.txt 2>json_errors.txt </dev/null
  expect 0 '^one object$' python3 -c 'import json
text = open("json.txt").read()
assert text.endswith("\n") and text.count("\n") == 1, text
assert isinstance(json.loads(text), dict)
print("one object")'
}

json_alone() {
  make_text
  # shellcheck disable=SC2086
  json on 2 train "$inputs/quickstart.toml" $tiny checkpoint.every=6 --json
  expect 0 '^step 12/12 ' cat json_errors.txt
  json "$kozero" eval run --json
  json "$kozero" inspect run --json
  json "$kozero" inspect run --verify --json
  json "$kozero" inspect run --diff run/step_000000012 --json
  json "$kozero" plan "${gpt2[@]}" --json
  # shellcheck disable=SC2086
  json "$kozero" bench stages "$inputs/quickstart.toml" $tiny --runs 1 --json
  # shellcheck disable=SC2086
  json "$kozero" bench step "$inputs/quickstart.toml" $tiny --runs 1 --json
  # shellcheck disable=SC2086
  json "$kozero" bench kernels "$inputs/quickstart.toml" $tiny --runs 1 --json
  # shellcheck disable=SC2086
  json on 2 bench checkpoint "$inputs/quickstart.toml" $tiny --runs 1 --json
  json on 2 bench collectives --size 1MiB --runs 1 --json
}

# A ring and a simulated network: what the banner, plan and verify say; the same losses and norms.
networks() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny run.steps=4 zero.stage=2
  expect 0 'output in' on 2 train "$@"
  expect 0 '^network +simulated: 0.05 Gbit/s and 200 us per collective, per rank$' \
    on 2 train "$@" run.dir=slow comm.throttle_gbit=0.05 comm.latency_us=200
  expect 0 'communicator ring \(sums in rank order\)$' on 2 train "$@" run.dir=exact comm.backend=ring comm.exact=true
  trace run >trace.txt
  for run in slow exact; do
    trace $run >"trace_$run.txt"
    expect 0 '^same$' bash -c "cmp trace.txt trace_$run.txt && echo same"
  done
  expect 0 "gradients added in the back end's order\$" on 2 train "$@" run.dir=ring comm.backend=ring
  expect 1 '^0$' grep -c '^network' ring/log.txt
  expect 0 'output in' "$kozero" train "$@" run.dir=alone comm.throttle_gbit=0.05
  expect 1 '^0$' grep -c '^network' alone/log.txt  # one rank has no network
  expect 0 'every bit of ' on 2 verify "$@" --steps 2 --ranks 1,2 comm.backend=ring comm.exact=true
  expect 2 'comm.backend = ring adds in an order of its own, so that numbers of ranks differ; accepted is one number' \
    on 2 verify "$@" --steps 2 --ranks 1,2 comm.backend=ring
  expect 0 'every bit of ' on 2 verify "$@" --steps 2 comm.backend=ring
  expect 2 'ring adds in an order that depends on their number' "$kozero" verify ring --replay 4
  expect 0 '; a simulated network of 0.001 Gbit/s$' "$kozero" plan "$@" --ranks 2 comm.throttle_gbit=0.001
  also '^limited by +communication +communication'
  expect 0 '^partial sums|^communication +8.0' "$kozero" plan "$@" --ranks 2 comm.backend=ring
}

# bench stages: bytes and memory are those that training counts; stages that cannot run are skipped.
stages() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny checkpoint.async=false comm.backend=shm run.threads=1
  expect 0 ': 2 ranks .rank 0: 1 thread.*, shm; 2 turns of 3 steps, medians$' on 2 bench stages "$@" --steps 3 --runs 2 --json
  also '^stage +step ms +tokens/s +memory MiB +sent MiB +exposed ms +waiting ms +moving ms  bits$'
  lines 4 '^ +[0-3]( +[0-9.]+){7}  equal$'
  grep '^{' out.txt >stages.json
  expect 0 'output in' on 2 train "$@" zero.stage=2 run.dir=run2 run.steps=3
  expect 0 '^as training counts$' python3 -c 'import json
rows = json.load(open("stages.json"))["stages"]
step = json.loads(open("run2/metrics.jsonl").readlines()[2])
assert [row["stage"] for row in rows] == [0, 1, 2, 3]
assert rows[2]["bytes_sent"] == sum(step["bytes_sent"].values()), (rows[2], step)
arrays = {k: v for k, v in step["memory"].items() if k not in ("resident", "peak", "disk")}
assert rows[2]["memory_bytes"] == sum(arrays.values()), (rows[2], arrays)
assert rows[0]["memory_bytes"] > rows[1]["memory_bytes"], rows
for row in rows:
    assert abs(row["exposed_s"] - row["waited_s"] - row["moved_s"]) < 1e-12, row
    assert row["bits_equal"] is True and row["difference"] == row["skipped"] == "", row
assert any(row["waited_s"] > 0 for row in rows), rows
assert {"reduce_scatter_waiting", "all_gather_waiting"} < step["seconds"].keys(), step
print("as training counts")'
  # shellcheck disable=SC2086
  expect 0 '^ +2 +skipped: zero.accumulation = "local" keeps whole gradients' on 2 bench stages "${gpt2[0]}" $tiny data.val_fraction=0.1 \
    zero.accumulation=local --steps 1 --runs 1
  lines 2 '  equal$'
  # Only MPI could tell how much of a call is waiting.
  expect 0 '^ +3( +[0-9.]+){5} +- +-  equal$' on 2 bench stages "$@" comm.backend=mpi --steps 1 --runs 1
  expect 0 '^  waiting for other ranks +- +-$' on 2 bench step "$@" comm.backend=mpi zero.stage=2 --runs 1
  expect 0 '^  waiting for other ranks +[0-9.]+ +[0-9.]+ %$' on 2 bench step "$@" zero.stage=2 --runs 1
  lines 2 '^  moving and adding +[0-9.]+ +[0-9.]+ %$'
  expect 2 'bench stages: no stage can run: the run needs [0-9.]+ [GMT]iB per rank' "$kozero" bench stages "$inputs/demos/llama.toml" \
    model.preset=llama-70b --runs 1
  lines 4 '^ +[0-3]  skipped: the run needs '
  expect 2 'bench stages measures all four: leave zero.stage out' "$kozero" bench stages "$@" zero.stage=1
  expect 2 'bench stages: --steps: "0"; accepted: number > 0; usage' "$kozero" bench stages "$@" --steps 0
  expect 2 'bench stages: .*--rusn is no option; did you mean --runs\?' "$kozero" bench stages "$@" --rusn 2
}

# Sizes with a unit; integers in all forms that decks accept; --help of train, whose lines for keys are from the schema.
readable_arguments() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny
  expect 2 'export: --max-shard-size: "5"; accepted: a size from 1 B to .*, such as 48GB or 512MiB; usage: ' "$kozero" export run hf \
    --max-shard-size 5
  expect 2 '--max-shard-mib is no option; did you mean --max-shard-size' "$kozero" export run hf --max-shard-mib 5
  expect 0 'in 1 file, gpt2' "$kozero" export run hf --max-shard-size 1.5GB
  expect 2 'bench collectives: --size: "16"; accepted: a size from 1.0 KiB to 4.0 GiB' on 2 bench collectives --size 1MiB,16
  expect 0 '^ +524288 +65536 shm ' on 2 bench collectives --size 512KiB --runs 1e0
  expect 0 '^ +4956160 +619520 ring +around the ring ' on 2 bench collectives --size 4956160 --backend ring --runs 1
  also '^reduce_scatter of f32 on 2 ranks .rank 0: 1 thread'
  also '^ +4956160 +619520 ring +added around the ring '
  lines 1 ' reduce_scatter_block '
  lines 1 ' allgather '
  expect 2 'train: --dataset=shakespeare is no option; did you mean data.text=shakespeare[?] --use_zero1=True is no option; did you mean zero.stage[?] --batch_size=12 is no option; did you mean train.global_batch=12[?] usage: ' \
    "$kozero" train "$inputs/quickstart.toml" --dataset=shakespeare --use_zero1=True --batch_size=12
  expect 2 'train: --deepspeed is no option; usage: ' "$kozero" ranks train "$inputs/quickstart.toml" --deepspeed ds.json
  # shellcheck disable=SC2086
  expect 0 ': 2 steps, every bit of ' on 2 verify "$inputs/quickstart.toml" $tiny --steps 2e0
  expect 2 'verify: --steps: "2e-1"; accepted: integer >= 1' on 2 verify "$inputs/quickstart.toml" --steps 2e-1
  expect 0 '^  optim.lr +learning rate at its peak \(default: [0-9.e-]+\)$' "$kozero" train --help
  also '^keys given most often:$'
  lines 10 '^  (model.preset|data.text|run.steps|run.dir|train.(global_batch|micro_batch|precision)|optim.lr|zero.stage|checkpoint.every) +[a-z]'
  expect 0 '^  --past-end +do not stop at an end-of-text token$' "$kozero" generate --help
}

# The banner names what computes, and counts per rank and per step.
banner() {
  make_text
  # shellcheck disable=SC2086
  set -- "$inputs/quickstart.toml" $tiny comm.backend=shm run.steps=1
  expect 0 '^batch +6 sequences of 16 tokens per step = 2 per rank at once x 2 ranks x 2 micro-steps, ' on 2 train "$@"
  also '^memory plan +[0-9.]+ MiB of arrays per rank: '
  also ', communicator shm \([0-9]+ MiB of arrays per rank shared\)$'
  expect 0 '^precision +f32, products by base, attention by base$' env KOZERO_TILE_UNITS=base "$kozero" train "$@"
}

# A terminal's status line needs control sequences. NO_COLOR and TERM=dumb turn them off, and samples never have any.
plain_text() {
  make_text
  # shellcheck disable=SC2086
  set -- train "$inputs/quickstart.toml" $tiny
  expect 0 "$(printf '\033')" env TERM=xterm KOZERO_TERMINAL=80 "$kozero" "$@"
  expect 0 'output in' env TERM=xterm KOZERO_TERMINAL=80 NO_COLOR=1 "$kozero" "$@"
  lines 0 "$(printf '\033')"
  expect 0 'output in' env TERM=dumb KOZERO_TERMINAL=80 "$kozero" "$@"
  lines 0 "$(printf '\033')"
  expect 0 '^UTF-8$' python3 -c 'text = open("out.txt", "rb").read().decode()
assert all(c >= " " or c in "\n\t" for c in text)
print("UTF-8")'
}

# kozero.sh calls `kozero ranks` with all its arguments.
ranks_of_arguments() {
  make_text
  expect 0 '^2$' "$kozero" ranks verify "$inputs/quickstart.toml" --steps 2 zero.stage=1
  expect 0 '^3$' "$kozero" ranks train "$inputs/quickstart.toml" run.ranks=3 --verify-data --json
  expect 0 '^runs/other$' "$kozero" ranks restarts "$inputs/quickstart.toml" run.ranks=3 run.dir=runs/other
  also '^3$'
  # shellcheck disable=SC2086
  expect 0 'output in' on 2 train "$inputs/quickstart.toml" $tiny run.ranks=1
  expect 0 '^2$' "$kozero" ranks verify run --replay 3
  # What kozero.sh starts afterwards is of the deck that `ranks` read: from its copy, or refused by its hash.
  sed '/^seed/d; s/^\[run\]$/&\nseed = 7/' "$inputs/quickstart.toml" >deck.toml
  local hash
  hash=$("$kozero" ranks train deck.toml | sed -n 2p)
  export KOZERO_DECK_COPY=$PWD/copy.toml
  expect 0 '^2$' "$kozero" ranks verify deck.toml
  expect 0 '^same$' sh -c 'cmp deck.toml copy.toml && echo same'
  sed -i 's/^seed = 7$/seed = 9/' deck.toml
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train deck.toml $tiny run.dir=copied
  expect 0 '^seed = 7 +# deck.toml:' grep '^seed' copied/deck.toml
  unset KOZERO_DECK_COPY
  # shellcheck disable=SC2086
  expect 2 'deck.toml: it changed while the command started; start the command again' \
    env KOZERO_DECK_HASH="$hash" "$kozero" train deck.toml $tiny run.dir=other
}

# kozero.sh in a tree without a build, with mocks of all programs that install or build: --help starts none of them.
help_of_the_script() {
  local mock
  mkdir -p bin tree/cmake tree/src/program
  cp -r "$inputs/../kozero.sh" "$inputs" tree
  cp "$inputs"/../src/program/*.sh tree/src/program
  for mock in bin/apt-get bin/cmake bin/ninja tree/cmake/install_packages.sh; do
    printf '#!/bin/sh\necho "$0 $*" >>%s/started\nexit 1\n' "$folder" >"$mock"
    chmod +x "$mock"
  done
  PATH=$folder/bin:$PATH
  expect 0 '^usage: ./kozero.sh' tree/kozero.sh --help
  expect 0 '^usage: ./kozero.sh' tree/kozero.sh build --help
  expect 0 '^usage: ./kozero.sh' tree/kozero.sh bench step -h
  expect 0 '^The program is not built yet. .* then `./kozero.sh plot --help` says more.$' tree/kozero.sh plot --help
  expect 2 '^kozero: train: give a deck, such as ./kozero.sh train inputs/quickstart.toml; ' tree/kozero.sh train zero.stage=2
  lines "$(grep -L "^\[sweep\]" -r "$inputs" --include="*.toml" | wc -l)" '^  inputs/[a-z0-9_/]*.toml +[^ ]'
  mkdir -p tree/build/release
  printf '#!/bin/sh\necho "program of an older commit: $*"\n' >tree/build/release/kozero
  chmod +x tree/build/release/kozero
  expect 0 '^program of an older commit: plot --help$' tree/kozero.sh plot --help
  expect 0 '^program of an older commit: bench kernels --help$' tree/kozero.sh help bench kernels
  expect 0 '^usage: ./kozero.sh' tree/kozero.sh help
  expect 1 'No such file' cat started
  printf '#!/bin/sh\nprintf "9.0\\n7.5\\n"\n' >bin/nvidia-smi
  chmod +x bin/nvidia-smi
  expect 1 '^kozero: the GPU has compute capability 7.5; KoZeRO needs 8.0 .A100. or newer$' env KOZERO_PRESET=cuda tree/kozero.sh build
  expect 2 "^kozero: --preset 'gpu' is not one of: release" env KOZERO_PRESET=gpu tree/kozero.sh build
  expect 1 'No such file' cat started
  expect 1 . tree/kozero.sh keys
  expect 0 'install_packages.sh tools' cat started
}

help_and_completion() {
  expect 0 '^usage: kozero COMMAND' "$kozero" --help
  cp out.txt help.txt
  expect 0 '^fits$' awk 'length > 80 { wide = 1 } END { if (NR > 9 && NR <= 31 && !wide) print "fits" }' help.txt
  "$kozero" completion bash >completion.bash
  local command words
  for command in train verify plan eval generate plot inspect prepare export import keys completion \
    watch metrics timeline report sweep 'bench step' \
    'bench stages' 'bench kernels' 'bench tune' 'bench checkpoint' 'bench collectives'; do
    # shellcheck disable=SC2086
    expect 0 "^usage: kozero $command" "$kozero" $command --help
    also '^example: kozero '
    cp out.txt help.txt  # expect empties out.txt before its command reads it
    tr -s ' \n' ' ' <help.txt >text.txt
    also '^Exit status: 0 done, 1 internal, or a difference .inspect, verify., 2 deck or$'
    # kozero has a table of the options that the benchmarks of kozero-bench accept.
    words=$(sed -nE 's/^  (--[a-z-]+) .*/\1/p' out.txt | tr '\n' ' ')
    ! grep -q '^  section.key=value' out.txt || words+='[$]_kozero_keys '
    [[ $command != bench* ]] || expect 0 "^    '$command'\) echo \"$words--help\"" cat completion.bash
    expect 0 '^fits$' awk 'length > 80 { wide = 1; print } END { if (NR > 5 && !wide) print "fits" }' help.txt
    expect 0 '^once$' sh -c "! grep -oE '[(]default: [^)]*[)] [(]default: [^)]*[)]' text.txt && echo once"
    # shellcheck disable=SC2086
    expect 0 "^usage: kozero $command" "$kozero" help $command
  done
  expect 2 'unknown command "plam": did you mean plan' "$kozero" help plam
  expect 0 'stage 0.s all-reduce is both in turn' sh -c "'$kozero' help bench collectives | tr -s ' \n' ' '"
  expect 0 '^  --ranks LIST +ranks to plan for, with commas \(default: run.ranks\)$' "$kozero" plan --help
  also '^  section.key=value +changes a key of the deck'
  expect 0 '^  --steps N +steps to compute under each ZeRO stage \(default: 3\)$' "$kozero" verify --help
  expect 0 '^  collectives: ' "$kozero" bench --help
  # complete WORD...: what bash offers for the last word.
  cat >complete.bash <<'END'
. ./completion.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }
_kozero
echo "${COMPREPLY[@]}"
END
  expect 0 '^plan plot$' bash complete.bash kozero pl
  expect 0 '^--steps$' bash complete.bash ./kozero.sh -n 2 verify deck.toml --st
  expect 0 '^zero.stage=$' bash complete.bash ./kozero.sh --hosts train --restarts 2 train deck.toml zero.st
  expect 0 '^zero.stage=$' bash complete.bash kozero train deck.toml zero.st
  expect 0 '^collectives$' bash complete.bash kozero bench co
  expect 0 '^--size$' bash complete.bash kozero bench collectives --si
  expect 0 '^$' bash complete.bash kozero prepare zero.st
  expect 2 'completion: .*fish' "$kozero" completion fish
  expect 0 '^compdef _kozero kozero' "$kozero" completion zsh
  ! command -v zsh >/dev/null || expect 0 '^whole$' sh -c "'$kozero' completion zsh >c.zsh && zsh -n c.zsh && echo whole"
}

plots() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny
  expect 3 '^\[rank 0\] error: text/metrics.jsonl: no such file; accepted: the folder of a run' "$kozero" plot text
  expect 2 'accepted are names that end in .svg or .png' "$kozero" plot run --out x.pdf
  expect 2 '^\[rank 0\] error: gnuplot is not installed \(not on the PATH\); on Debian: apt-get install gnuplot-nox; ' \
    env PATH=/nowhere "$kozero" plot run
  lines 1 .
  command -v gnuplot >/dev/null || return
  expect 0 '^ +gradient norm *$' "$kozero" plot run
  also '^ +validation loss *$'
  also '^ +learning rate *$'
  also ' run \*+'
  # A run under way: its last line is incomplete, one step was not finite, and its name has characters that gnuplot or a
  # shell could interpret.
  local name="it's a \"run\" \`touch gone\` \$(touch gone)"
  cp -r run "$name"
  printf '{"step":13,"tokens":1,"loss":null,"lr":0.001}\n{"step":14,"lo' >>"$name/metrics.jsonl"
  expect 0 '^both.svg: 2 runs$' "$kozero" plot run "$name" --out both.svg
  expect 0 '^well-formed$' python3 -c 'import xml.dom.minidom as xml
words = ["".join(part.data for part in text.childNodes if part.nodeType == 3) or "".join(
    part.data for span in text.getElementsByTagName("tspan") for part in span.childNodes if part.nodeType == 3)
         for text in xml.parse("both.svg").getElementsByTagName("text")]
assert all(words.count(name) == 4 for name in ("run", "it'"'"'s a \"run\" `touch gone` $(touch gone)")), words
print("well-formed")'
  expect 2 gone ls gone
  # The look of a report: its colors, and names of the y axes.
  expect 0 'rgb\(  0, 114, 178\)' cat both.svg
  also 'nats per token'
  expect 0 '^both.png: 2 runs$' "$kozero" plot run "$name" --out both.png
  expect 0 PNG head -c 4 both.png
  # Paths that are no run, and runs without steps, are skipped.
  mkdir begun && : >begun/metrics.jsonl
  expect 0 '^note: left out, no run with a step: begun, text$' "$kozero" plot begun run text --out both.svg
  also '^both.svg: 1 run$'
  expect 3 'nowhere: no such file; accepted:' "$kozero" plot run nowhere
  expect 3 '^\[rank 0\] error: begun/metrics.jsonl: it has no step yet$' "$kozero" plot begun text
  # A long run: the picture's size does not grow with the run, and a spike of one step stays visible.
  awk 'BEGIN { for (i = 1; i <= 50000; ++i) printf "{\"step\":%d,\"loss\":%s,\"lr\":0.5}\n", i, i == 31234 ? 99.5 : 1 }' >long.jsonl
  expect 0 '^long.svg: 1 run$' "$kozero" plot long.jsonl --out long.svg
  expect 0 '^small$' sh -c '[ "$(stat -c %s long.svg)" -lt 100000 ] && echo small'
  expect 0 '> 100<' grep -o '> 100<' long.svg  # the axis of the loss reaches the spike
}

# eval writes nothing into the weights' folder, works from any folder, and refuses keys that it does not read.
eval_anywhere() {
  make_text
  # shellcheck disable=SC2086
  expect 0 'output in' "$kozero" train "$inputs/quickstart.toml" $tiny
  expect 0 "^text = \\[\"$folder/text\"\\]" cat run/deck.toml
  mkdir elsewhere
  ls -R run >before.txt
  expect 0 '^validation   loss .* tokens$' env -C elsewhere "$kozero" eval ../run
  also '^note +an end-of-text token \(id 0\) is put before each document$'
  expect 0 same sh -c 'ls -R run | cmp - before.txt && echo same'
  expect 0 '^given data   loss ' on 2 eval run 'data.text=["text/a.txt"]'
  lines 0 '^validation'
  expect 2 'command line: optim.lr=3: eval does not read it; accepted are model.init, data.text, data.source, data.tokens, data.tokenizer, data.chat_template, data.cache, comm.\*' "$kozero" eval run optim.lr=3
  expect 2 'command line: data.val_fraction=0.1: eval does not read it' "$kozero" eval run data.val_fraction=0.1
  expect 2 'command line: train.recompute=full: eval does not read it' on 2 eval run train.recompute=full
  expect 2 'did you mean stage' "$kozero" eval run zero.stge=1
}

# Reported: text that is not UTF-8, skipped files, fewer ids than requested, an override given twice.
notes_on_data() {
  make_text
  printf 'caf\xe9\n' >text/latin.txt
  head -c 100 /dev/zero >text/zeros.dat
  printf '\r\nx\r\n' >>text/a.txt
  : >text/.hidden
  # shellcheck disable=SC2086
  expect 0 '^data .* text now in .tokens/[0-9a-f]{16}; each document begins with end-of-text \(id 0\); byte-order marks \(0\) and CR LF line ends \(2\) go into the tokens as they are; dos2unix FILE removes both; skipped text/latin.txt \(not UTF-8: byte 3 is 0xE9\), text/zeros.dat \(binary\), 1 hidden or empty$' \
    on 2 train "$inputs/quickstart.toml" $tiny run.steps=3
  also '^note: command line: run.steps is given twice; 3 counts, not 12$'
  lines 1 '^note: '
  printf '{"content": "a", "messages": []}\n{"content": "b"}\n' >chat.jsonl
  # shellcheck disable=SC2086
  expect 3 '^\[rank 0\] error: data.text: chat.jsonl: JSON lines: row 1 has no field "text"; its keys: content, messages; they are conversations: set data.chat_template$' \
    on 2 train "$inputs/quickstart.toml" $small 'data.text=["chat.jsonl"]'
  printf '[\n  {\n  "instruction": "a"},\n  {"instruction": "b"}]\n' >alpaca.json
  # shellcheck disable=SC2086
  expect 3 '^\[rank 0\] error: data.text: alpaca.json: a JSON array of objects; accepted: UTF-8 text, JSON lines .*; write JSON lines: jq -c ' \
    on 2 train "$inputs/quickstart.toml" $small 'data.text=["alpaca.json"]'
  expect 2 'data.tokenizer = "gpt2": accepted: .*hf download openai-community/gpt2 tokenizer.json' "$kozero" train \
    "$inputs/quickstart.toml" 'data.text=["text"]' data.tokenizer=gpt2
  # shellcheck disable=SC2086
  expect 3 '^\[rank 0\] error: data.text: text/latin.txt: not UTF-8: byte 3 is 0xE9; convert it' \
    on 2 train "$inputs/quickstart.toml" $small 'data.text=["text/latin.txt"]'
  { seq 1 9000 && printf '\xff'; } >late.txt
  expect 3 "data.text: late.txt: not UTF-8: byte $(($(stat -c %s late.txt) - 1)) is 0xFF" "$kozero" prepare late.txt out
  printf '{"text": "one two"}\n{"text": ""}\n{"text": "one two"}\n{"text": "caf\\u00e9"}\n' >few.jsonl
  expect 0 '^note: left out records: 1 duplicate, 1 empty$' "$kozero" prepare few.jsonl out --deduplicate --val-fraction 0 --show 5
  also '^document 1, 6 tokens$'
  also 'c\|a\|f\|.+$'
  lines 2 '^document '
  expect 2 'shard-tokens 0 --threads 0: accepted: 1 to 2147483647 tokens' "$kozero" prepare few.jsonl out --shard-tokens 0
  expect 2 'threads 100000: accepted: .*, 1 to 4096 threads$' "$kozero" prepare few.jsonl out --threads 100000
  expect 2 'filter = "text": accepted: COLUMN SIGN NUMBER' "$kozero" prepare few.jsonl out --filter text
  echo 'ab ab' >short.txt
  expect 0 '^note: bpe:100000: [0-9]+ ids were learned, the text has no more pairs$' "$kozero" prepare short.txt out --tokenizer bpe:100000
  expect 2 'data.val_fraction = 0.990000: accepted: number 0 to 0.5$' "$kozero" prepare text out --val-fraction 0.99
  expect 2 'data.val_fraction = 0.9999: accepted: number 0 to 0.5$' "$kozero" plan "$inputs/quickstart.toml" data.val_fraction=0.9999
}

run_case
