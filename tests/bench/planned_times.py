#!/usr/bin/env python3
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""planned_times.py KOZERO [MPIEXEC]: the step times that `kozero plan` estimates beside measured ones, for some decks.

Each deck is planned and then trained for 4 steps on 1 or 2 ranks; the median of steps 2 to 4 counts. Prints a line per
deck and the largest difference. For two cores without other programs."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = [os.path.join(ROOT, "tests/bench/gpt2_124m_f32.toml"), "run.steps=4", "run.threads=1", "model.layers=4",
        "model.vocab=8192", "train.global_batch=4"]
DECKS = [
    (1, 0, "run.threads=2 train.micro_batch=4"),
    (1, 0, "run.threads=2 train.micro_batch=4 train.precision=bf16"),
    (1, 0, "run.threads=2 train.micro_batch=1 train.precision=bf16"),
    (2, 1, "train.micro_batch=2"),
    (2, 1, "train.micro_batch=2 train.precision=bf16"),
    (2, 2, "train.micro_batch=1 train.precision=bf16"),
    (2, 3, "train.micro_batch=2 train.precision=bf16"),
    (2, 3, "train.micro_batch=2 train.precision=bf16 train.recompute=full"),
    (2, 3, "train.micro_batch=2 train.recompute=selective"),
    (2, 1, "train.micro_batch=1 model.dim=384 model.heads=6 train.precision=bf16"),
    (2, 3, "train.micro_batch=1 model.seq=1024 train.precision=bf16"),
    (2, 1, "train.micro_batch=2 comm.backend=mpi model.vocab=50257 train.precision=bf16"),
    (2, 3, "train.micro_batch=2 model.vocab=50257 model.vocab_block=8192 train.precision=bf16"),
]


def run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    kozero, mpiexec = sys.argv[1], (sys.argv[2:] or ["mpiexec"])[0]
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number, (ranks, stage, overrides) in enumerate(DECKS):
            deck = BASE + [f"zero.stage={stage}"] + overrides.split()
            plan = json.loads(run([kozero, "plan", *deck, "--ranks", str(ranks), "--json"]))
            estimate = plan["stages"][stage]["seconds"]["total"]
            path = os.path.join(folder, str(number))
            run([mpiexec, "-n", str(ranks), kozero, "train", *deck, f"run.dir={path}"])
            with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8") as lines:
                steps = [json.loads(line)["step_s"] for line in lines if '"step_s"' in line]
            taken = statistics.median(steps[1:])
            difference = 100.0 * (estimate / taken - 1.0)
            worst = max(worst, abs(difference))
            print(f"{ranks} ranks, stage {stage}, {overrides}: estimated {estimate:.3f} s, taken {taken:.3f} s, "
                  f"{difference:+.0f} %", flush=True)
    print(f"largest difference: {worst:.0f} %")


if __name__ == "__main__":
    main()
