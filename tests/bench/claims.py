#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""claims.py [WORD...]: runs inputs/claims.toml, kills and resumes one more run, and judges what KoZeRO claims.

WORDs go to `kozero sweep`: sweep.dir=runs/other, run.threads=1. Prints one line per claim with its figures. Times are
judged with a margin of 10 %, everything else is exact. Exit status 0: all claims hold. KOZERO: the program
(default: build/release/kozero).
"""
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KOZERO = pathlib.Path(os.environ.get("KOZERO", ROOT / "build/release/kozero")).resolve()
MARGIN = 1.1  # of times
SLOW = 1.1  # a longer step than this multiple counts as slowed down, as in `kozero report`
NO_ARRAYS = ("peak", "resident", "disk")
wrong = 0


def claim(holds, name, figures):
    global wrong
    wrong += not holds
    print(f"{'pass' if holds else 'FAIL'}  {name}: {figures}", flush=True)


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Case:
    def __init__(self, folder, planned):
        self.run = folder / planned["folder"] / "run"
        self.rows = rows_of(self.run)
        self.memory = self.rows[-1]["memory"]
        self.arrays = sum(size for name, size in self.memory.items() if name not in NO_ARRAYS)
        self.planned = planned["planned"]["bytes_per_rank"]
        self.sent = sum(self.rows[-1]["bytes_sent"].values())
        self.step_s = statistics.median(row["step_s"] for row in self.rows[1:])

    def losses(self):
        return [(row["step"], row["loss"]) for row in self.rows]


def mpiexec(ranks):
    cache = (KOZERO.parent / "CMakeCache.txt").read_text().splitlines()
    words = next(line.split("=", 1)[1] for line in cache if line.startswith("KOZERO_MPIEXEC:")).split(";")
    return [*words, "-n", str(ranks), str(KOZERO)]


def killed_and_resumed(case, folder):
    """The case's deck in stage 3 on 2 ranks, killed by SIGKILL in the middle, and resumed in stage 1 on 3 ranks."""
    shutil.rmtree(folder, ignore_errors=True)
    words = ["train", str(case.run / "deck.toml"), f"run.dir={folder}", "checkpoint.every=10"]
    with open(f"{folder}.txt", "w") as output:
        job = subprocess.Popen(mpiexec(2) + words + ["zero.stage=3"], stdout=output, stderr=output, start_new_session=True)
        while job.poll() is None and not ((folder / "metrics.jsonl").exists() and len(rows_of_text(folder)) > 22):
            time.sleep(0.01)
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        at = len(rows_of_text(folder))
        while ranks_live(folder):
            time.sleep(0.1)
        subprocess.run(mpiexec(3) + words + ["zero.stage=1", "checkpoint.resume=auto"], stdout=output, stderr=output, check=True)
    return at, [(row["step"], row["loss"]) for row in rows_of(folder)]


def rows_of_text(run):
    """Complete lines, while the run goes on."""
    return (run / "metrics.jsonl").read_text().split("\n")[:-1]


def ranks_live(folder):
    return subprocess.run(["pgrep", "-f", f"run.dir={folder} "], stdout=subprocess.DEVNULL).returncode == 0


def crossover(cases, names):
    """The bandwidth below which the first of two kinds of cases is slowed down, interpolated; None: not enclosed."""
    points = [(gbit, cases[f"{names[0]}, {gbit:g} Gbit/s"].step_s / cases[f"{names[1]}, {gbit:g} Gbit/s"].step_s) for gbit in (0.5, 2.5, 25)]
    for (slow, before), (fast, after) in zip(points, points[1:]):
        if before > SLOW >= after:
            return slow * (fast / slow) ** (math.log(before / SLOW) / math.log(before / after)), points[0][1]
    return None, points[0][1]


def judge(folder):
    sweep = json.loads((folder / "sweep.json").read_text())
    cases = {one["values"]["claim"]["name"] if isinstance(one["values"]["claim"], dict) else one["values"]["claim"]: Case(folder, one)
             for one in sweep["cases"]}
    of_4 = [cases[f"stage {stage}, 4 ranks"] for stage in range(4)]
    optimizer = [of_4[0].memory["optimizer"] / case.memory["optimizer"] for case in of_4]
    claim(all(abs(ratio - 4) < 0.01 for ratio in optimizer[1:]), "stages 1 to 3 on 4 ranks hold a quarter of the optimizer's state",
          "stage 0 / stage n = " + ", ".join(f"{ratio:.3f}" for ratio in optimizer[1:]))
    volume = of_4[0].memory["parameters"] * 3 / 4
    sent = [case.sent / volume for case in of_4]
    claim(all(abs(ratio - 2) < 0.01 for ratio in sent[:3]) and 2 < sent[3] <= 3, "a step sends 2 V, 2 V, 2 V and at most 3 V (counted)",
          ", ".join(f"{ratio:.3f} V" for ratio in sent))
    slower = [cases[f"stage 1, {ranks}"].step_s / cases[f"stage 0, {ranks}"].step_s for ranks in ("2 ranks", "4 ranks")]
    claim(max(slower) < MARGIN, "stage 1 costs next to no time", f"step of stage 1 / stage 0 = {slower[0]:.3f} on 2 ranks, {slower[1]:.3f} on 4")
    gbit, worst = crossover(cases, ("no prefetch", "stage 2"))
    claim(gbit is not None, "without prefetching, stage 3 is slower than stage 2 on slow networks only",
          f"at 0.5 Gbit/s {worst:.2f} times the step; 10 % longer below {gbit:.2g} Gbit/s" if gbit else f"at 0.5 Gbit/s {worst:.2f} times the step")
    gbit, ahead = crossover(cases, ("stage 3", "stage 2"))
    claim(ahead < worst / MARGIN, "prefetching hides a part of stage 3's gathers",
          f"at 0.5 Gbit/s {ahead:.2f} times the step of stage 2; 10 % longer " + (f"below {gbit:.2g} Gbit/s" if gbit else "at no measured rate"))
    activations = [cases[name].memory["activations"] for name in ("stage 2, 2 ranks", "recompute selective", "recompute full")]
    claim(activations[0] > activations[1] > activations[2], "recomputation saves activations",
          ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in zip(("none", "selective", "full"), activations)))
    errors = {name: abs(case.planned / case.arrays - 1) for name, case in cases.items()}
    worst = max(errors, key=errors.get)
    claim(errors[worst] < 0.01, "the planned memory of arrays is what is allocated", f"at most {100 * errors[worst]:.3f} % off, in \"{worst}\"")
    expected = cases["stage 0, 1 rank"].losses()
    others = [name for name, case in cases.items() if case.losses() != expected]
    claim(not others, "one line of losses for all stages, ranks and networks", f"0 bits differ over {len(cases)} runs" if not others else f"{others} differ")
    at, losses = killed_and_resumed(cases["stage 0, 1 rank"], folder / "killed")
    claim(losses == expected and at < len(expected), "a run killed in stage 3 on 2 ranks and resumed in stage 1 on 3 has these losses",
          f"killed after step {at} of {len(expected)}, {sum(a != b for a, b in zip(losses, expected))} steps differ")


def main():
    words = sys.argv[1:]
    print(" ".join(["kozero sweep inputs/claims.toml", *words]), flush=True)
    start = time.monotonic()
    subprocess.run([KOZERO, "sweep", "inputs/claims.toml", *words], cwd=ROOT, check=True)
    folder = next((word.split("=", 1)[1] for word in words if word.startswith("sweep.dir=")), "runs/claims")
    judge(ROOT / folder)
    print(f"{wrong} of the claims do not hold; {time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
