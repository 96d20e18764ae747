#!/usr/bin/env python3
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""Losses, gradient norms and final weights of the ready decks on 1 to 3 ranks, before and after a change that must not
change a bit.

  tests/pinned_runs.py record pinned.json            before the change: writes them
  tests/pinned_runs.py compare pinned.json           after it: status 1 and the first difference if any

--program names the program (default: build/release/kozero), --only a part of a case's name. The runs train on this
repository's own text at the recorded commit. Bits depend on the processor: record and compare on one machine.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = ["README.md", "src", "include", "kernels", "io"]
STEPS = {"quickstart": 60}
# Jobs by name: a deck in inputs/ with overrides, and the precisions in which it runs.
JOBS = {
    "quickstart": (["quickstart.toml"], ["f32", "bf16", "fp16"]),
    "stage0": (["stages.toml", "zero.stage=0"], ["f32"]),
    "stage1": (["stages.toml", "zero.stage=1"], ["f32"]),
    "stage2": (["stages.toml", "zero.stage=2"], ["f32"]),
    "stage3": (["stages.toml", "zero.stage=3"], ["f32", "bf16", "fp16"]),
    "llama": (["demos/llama.toml"], ["f32", "bf16", "fp16"]),
    "qwen3": (["demos/qwen3.toml"], ["f32", "bf16"]),
}


def cases():
    for job, (_, precisions) in JOBS.items():
        for precision in precisions:
            for ranks in (1, 2, 3):
                yield f"{job} {precision} {ranks}", job, precision, ranks


def hash_of_values(safetensors):
    """A hash of the tensors' names, shapes and values, which follow a header of that length."""
    content = safetensors.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(content[8 + length :])
    return digest.hexdigest()


def run(program, job, precision, ranks, text, folder):
    """A run's results: one line of text per step, and a hash of the final weights."""
    out = folder / "run"
    steps = STEPS.get(job, 20)
    deck, *overrides = JOBS[job][0]
    keys = [f"run.dir={out}", f"run.steps={steps}", f"train.precision={precision}", "train.eval_every=0"]
    keys += ["data.text=" + json.dumps([str(text / name) for name in TEXT]), "checkpoint.every=0"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false")
    command = ["mpiexec", "-n", str(ranks), program, "train", ROOT / "inputs" / deck, *overrides, *keys]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"pinned_runs: {job} {precision} on {ranks} ranks ended with status {done.returncode}:\n{done.stderr}")
    lines = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        if step.get("loss") is not None:
            lines.append(f"{step['step']} {step['loss']!r} {step['grad_norm']!r}")
    exported = folder / "exported"
    subprocess.run([program, "export", out, exported], env=environment, cwd=folder, check=True, capture_output=True)
    weights = hash_of_values(exported / "model.safetensors")
    return {"steps": lines, "weights": weights}


def text_of(commit, folder):
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit, *TEXT], check=True, capture_output=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "xf", "-"], cwd=folder, input=archive, check=True)
    return folder


def first_difference(expected, got):
    for line, (before, after) in enumerate(zip(expected["steps"], got["steps"])):
        if before != after:
            return f"step, loss, norm were {before}, are {after}"
    if len(expected["steps"]) != len(got["steps"]):
        return f"{len(expected['steps'])} steps were recorded, {len(got['steps'])} were run"
    return None if expected["weights"] == got["weights"] else "the final weights differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/kozero")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    recorded = json.loads(options.file.read_text()) if options.action == "compare" else {"runs": {}}
    if options.action == "record":
        head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        recorded["text"] = head.stdout.strip()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        text = text_of(recorded["text"], pathlib.Path(folder) / "text")
        for name, job, precision, ranks in cases():
            if options.only not in name or (options.action == "compare" and name not in recorded["runs"]):
                continue
            with tempfile.TemporaryDirectory(dir=folder) as work:
                got = run(options.program.resolve(), job, precision, ranks, text, pathlib.Path(work))
            if options.action == "record":
                recorded["runs"][name] = got
                print(f"{name}: {len(got['steps'])} steps", flush=True)
                continue
            difference = first_difference(recorded["runs"][name], got)
            different += difference is not None
            print(f"{name}: {'equal' if difference is None else difference}", flush=True)
    if options.action == "record":
        options.file.write_text(json.dumps(recorded, indent=1) + "\n")
    elif different:
        sys.exit(f"pinned_runs: {different} runs differ")


if __name__ == "__main__":
    main()
