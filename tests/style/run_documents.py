# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# run_documents.py CASE SOURCE BUILD MPIEXEC [PAGE...]: runs the commands of the documents.
#   run      the blocks marked `run`, as a reader would type them, in a scratch folder. Decks of inputs/ are trained with a
#            tiny model, DECK, RUN and the like stand for files made here.
#   long     the blocks marked `run: long`, as they are printed, page by page
#   options  every command and option that a page shows is in the program's help
# A block fails if one of its commands does. Lines behind `$ ` are commands, and those below them their output.

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import check_documents

STAND_FOR = {"DECK": "deck.toml", "RUN": "runs/quickstart", "STEP": "3", "CKPT": "runs/quickstart/step_000000004",
             "OTHER": "runs/quickstart/step_000000002", "OUT": "out", "HF_FOLDER": "hf", "TEXT": "my_book.txt",
             "FILE": "tuned.toml"}

# In place of kozero.sh: builds nothing, and makes runs of inputs/ small.
SCRIPT = r"""#!/usr/bin/env bash
set -euo pipefail
ranks=''
if [[ $1 == -n ]]; then ranks=$2; shift 2; fi
words=("$@")
if [[ -n $KOZERO_SMALL && $1 =~ ^(train|verify)$ && ${2:-} == inputs/* ]]; then
  small=(run.steps=4 train.global_batch=4 train.micro_batch=1 checkpoint.every=2 train.eval_every=2 optim.warmup_steps=1)
  [[ " $* " == *' data.'* ]] || small+=(data.text=my_book.txt)
  [[ $2 == */finetune.toml ]] || small+=(model.layers=1 model.dim=32 model.heads=2 model.seq=32 data.tokenizer=bytes)
  words=("$1" "$2" "${small[@]}" "${@:3}")
fi
if [[ -z $ranks && $1 =~ ^(train|verify)$ ]]; then
  ranks=$("$KOZERO_PROGRAM" ranks "${words[@]}")
  ranks=${ranks%%$'\n'*}
fi
if [[ $1 == help || -z $ranks ]]; then exec "$KOZERO_PROGRAM" "${words[@]}"; fi
exec $KOZERO_LAUNCHER -n "$ranks" "$KOZERO_PROGRAM" "${words[@]}"
"""

DECK = """[run]
steps = 4
ranks = 2
[model]
layers = 1
dim = 32
heads = 2
seq = 32
[data]
text = ["my_book.txt"]
[train]
global_batch = 4
micro_batch = 1
[checkpoint]
every = 2
"""


def commands_of(rows):
    """The commands of a block: all of it, or what stands behind `$ `, with the lines that a backslash joins."""
    if not any(row.startswith("$ ") for row in rows):
        return "\n".join(rows)
    lines, goes_on = [], False
    for row in rows:
        if row.startswith("$ ") or goes_on:
            lines.append(row.removeprefix("$ "))
            goes_on = row.endswith("\\")
    return "\n".join(lines)


def without_comments(command):
    return re.sub(r"(?:^|\s)#.*$", "", command, flags=re.M)


def with_files(command, launcher):
    """DECK and the like replaced by names of files, where they are words or values of their own; mpiexec by the build's."""
    command = re.sub(r"(?m)^mpiexec\b", launcher, command)
    for word, name in STAND_FOR.items():
        command = re.sub(rf"(?<![\w/-]){word}(?![\w-])(?:\.\.\.)?", name, command)
    return command


class Scratch:
    """A new folder that looks like the tree, with texts, a deck, a finished run and a Hugging Face folder."""

    def __init__(self, folder, source, build, launcher, small):
        self.folder = folder
        self.environment = dict(os.environ, KOZERO_PROGRAM=str(build / "kozero"), KOZERO_LAUNCHER=launcher,
                                KOZERO_SMALL="yes" if small else "", XDG_CACHE_HOME=str(folder / "cache"),
                                OMP_NUM_THREADS="1", OMP_PROC_BIND="false")
        folder.mkdir()
        for name in ("inputs", "docs", "src", "tests", "README.md", "LICENSE"):
            (folder / name).symlink_to(source / name)
        (folder / "build").mkdir()
        (folder / "build/release").symlink_to(build)
        (folder / "kozero.sh").write_text(SCRIPT)
        (folder / "kozero.sh").chmod(0o755)
        if small:
            self.add_files(source)

    def add_files(self, source):
        text = (source / "LICENSE").read_text()
        for name in ("my_book.txt", "my_text.txt", "news.txt", "my_folder/a.txt", "web/a.txt", "books/a.txt"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text[:12000])
        (self.folder / "fineweb").mkdir()
        lines = [json.dumps({"text": text[i:i + 3000], "int_score": i // 1000 % 5}) for i in range(0, len(text), 1000)]
        (self.folder / "fineweb/a.jsonl").write_text("\n".join(lines) + "\n")
        chats = [{"prompt": "Say hello.", "completion": "Hello!"}, {"prompt": "And bye?", "completion": "Bye!"}]
        (self.folder / "chat.jsonl").write_text("".join(json.dumps(each) + "\n" for each in chats * 40))
        (self.folder / "deck.toml").write_text(DECK)
        ended = self.run("./kozero.sh train inputs/quickstart.toml && ./kozero.sh train inputs/quickstart.toml && "
                         "./kozero.sh export runs/quickstart hf")
        if ended.returncode != 0:
            raise SystemExit("the quick start fails:\n" + ended.stdout)

    def run(self, command, timeout=None):
        self.environment["HOME"] = str(self.folder)
        return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                              errors="replace")


def failures_of(scratch, page, mark, seconds):
    for line, given, rows in check_documents.blocks(page.read_text()):
        if given != mark:
            continue
        command = commands_of(rows)
        if mark == "run":
            command = with_files(without_comments(command), scratch.environment["KOZERO_LAUNCHER"])
            subprocess.run(["rm", "-rf", str(scratch.folder / "out")], check=True)
        start = time.monotonic()
        try:
            ended = scratch.run(command, seconds)
        except subprocess.TimeoutExpired:
            yield f"{page.name}:{line}: not done after {seconds} s:\n{command}"
            continue
        print(f"{page.name}:{line}: {time.monotonic() - start:.1f} s, status {ended.returncode}", flush=True)
        if ended.returncode != 0:
            yield f"{page.name}:{line}: status {ended.returncode}:\n{command}\n{ended.stdout[-2000:]}"


def shown_commands(text):
    """(command, options) of each kozero command that a block or a text in backticks shows."""
    parts = [command for _, _, rows in check_documents.blocks(text) for command in commands_of(rows).split("\n")]
    parts = re.split(r"&&|;|\|\|", "\n".join(parts).replace("\\\n", " ").replace("\n", ";"))
    for part in [without_comments(part) for part in parts] + re.findall(r"`((?:\./kozero\.sh|kozero) [^`]*)`", text):
        found = re.search(r"(?:\./kozero\.sh|kozero(?:-cuda)?)((?: (?:-n|--preset) \S+)*)\s+([a-z]+)(\s.*|$)", part)
        if not found or "emulate.py" in part:  # whose last argument is a program
            continue
        command, rest = found.group(2), found.group(3)
        if command == "bench" and re.match(r"\s+[a-z]+", rest):
            command += " " + rest.split()[0]
        yield command, re.findall(r"\s(--[a-z-]+)", rest)


def unknown_options(source, build):
    helps = {}
    for page in check_documents.pages_of(source):
        for command, options in shown_commands(page.read_text()):
            if command in ("build", "test"):  # of kozero.sh; what follows `test` goes to ctest
                continue
            if command not in helps:
                words = [str(build / "kozero"), *command.split(), "--help"]
                ended = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                helps[command] = ended.stdout if ended.returncode == 0 else None
            if helps[command] is None:
                yield f"{page.name}: there is no command {command}"
                continue
            for option in options:
                if option != "--help" and not re.search(rf"{option}\b(?!-)", helps[command]):
                    yield f"{page.name}: {command} has no option {option}"


def main():
    case, source, build, launcher = sys.argv[1], *map(pathlib.Path, sys.argv[2:4]), sys.argv[4]
    pages = [page for page in check_documents.pages_of(source) if not sys.argv[5:] or page.name in sys.argv[5:]]
    if case == "options":
        wrong = list(unknown_options(source, build))
    else:
        wrong = []
        mark, seconds = ("run", 100) if case == "run" else ("run: long", 1800)
        with tempfile.TemporaryDirectory() as parent:
            # One path for all pages, since a run's files have absolute paths.
            folder, original = pathlib.Path(parent) / "tree", pathlib.Path(parent) / "original"
            scratch = Scratch(folder, source.resolve(), build.resolve(), launcher, case == "run")
            shutil.copytree(folder, original, symlinks=True)
            for page in pages:
                if f"<!-- {mark} -->" not in page.read_text():
                    continue
                shutil.rmtree(folder)
                shutil.copytree(original, folder, symlinks=True)
                wrong += failures_of(scratch, page, mark, seconds)
    print("\n".join(wrong) if wrong else f"{case}: all as the documents say")
    return 1 if wrong else 0


sys.exit(main())
