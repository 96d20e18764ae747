# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""soak.py KOZERO MPIEXEC DECK [--minutes M] [--bytes-per-step B]: a job of small steps, watched for growing resources.

Two ranks train a tiny model for M minutes, save a checkpoint every 200 steps and evaluate every 100. Once a second each
rank's anonymous resident memory (RssAnon), its open descriptors and the files of the run's folder are counted. The
first third of the time is ignored. Exit status 1 if one of these grew:
  memory       the slope of a straight line through a rank's samples is over B bytes per step (and over 16 KiB in all)
  descriptors  a rank has more of them in the last third than in the second
  files        the folder has more of them in the last third than in the second
  steps        the median of step_s in the last third is over 1.5 times that in the second (with --steady)
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from job import RANKS, Expectations, Job, train_command, write_text


def memory_of(process):
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("no RssAnon")


def sample_of(job, run):
    """{"memory": by rank, "descriptors": by rank, "files": of the folder, "step"}; None if a rank has ended."""
    ranks = job.ranks()
    try:
        sample = {"memory": {r: memory_of(p) for r, p in ranks.items()},
                  "descriptors": {r: len(os.listdir(f"/proc/{p}/fd")) for r, p in ranks.items()}}
    except OSError:
        return None
    sample["files"] = sum(len(files) for _, _, files in os.walk(run))
    sample["step"] = steps_done(run)
    return sample if len(ranks) == RANKS else None


def steps_done(run):
    metrics = run / "metrics.jsonl"
    if not metrics.exists():
        return 0
    with open(metrics, "rb") as file:
        file.seek(max(0, metrics.stat().st_size - 8192))
        whole = file.read().rpartition(b"\n")[0].splitlines()
    return json.loads(whole[-1])["step"] if whole else 0


def slope(xs, ys):
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((a - x) ** 2 for a in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / spread if spread > 0 else 0.0


def watch(options, folder, run):
    write_text(folder)
    command = train_command(options.kozero, options.deck, folder, run, "run.steps=1000000000", f"run.max_minutes={options.minutes}",
                            "checkpoint.every=200", "checkpoint.keep=2", "train.eval_every=100", "train.eval_batches=1",
                            "log.every=1000", "comm.timeout_s=120")
    job = Job(options.mpiexec, RANKS, command, folder / "said")
    samples = []
    while job.running() and time.monotonic() - job.start < 60.0 * options.minutes + 300.0:
        time.sleep(1.0)
        sample = sample_of(job, run)
        if sample is not None and sample["step"] > 0:
            samples.append(sample)
    status, _ = job.wait(300)
    return status, job.said(), samples


def main():
    parser = argparse.ArgumentParser()
    for name in ("kozero", "mpiexec", "deck"):
        parser.add_argument(name)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--bytes-per-step", type=float, default=1.0)
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--samples", help="a JSON line a sample is written to this file")
    options = parser.parse_args()
    expected = Expectations()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = folder / "run"
        status, said, samples = watch(options, folder, run)
        expected.expect(status == 75, f"status {status}, wanted 75 (run.max_minutes have passed)", said)
        times = [json.loads(line)["step_s"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    if options.samples:
        pathlib.Path(options.samples).write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    third = len(samples) // 3
    middle, last = samples[third:2 * third], samples[2 * third:]
    if not expected.expect(third >= 3, f"{len(samples)} samples are too few", said):
        sys.exit(1)
    steps = [sample["step"] for sample in middle + last]
    print(f"{len(times)} steps, {len(samples)} samples; from step {steps[0]} to {steps[-1]}:")
    for rank in range(RANKS):
        memory = [sample["memory"][rank] for sample in middle + last]
        growth = slope(steps, memory)
        grown = growth * (steps[-1] - steps[0])
        print(f"rank {rank}: {growth:+.2f} bytes per step, {grown / 1024:+.0f} KiB in all, now {memory[-1] / 2**20:.1f} MiB")
        expected.expect(growth <= options.bytes_per_step or grown <= 16384, f"rank {rank}'s memory grows by {growth:.2f} bytes per step")
        before, after = (max(sample["descriptors"][rank] for sample in part) for part in (middle, last))
        print(f"rank {rank}: at most {before} descriptors, then {after}")
        expected.expect(after <= before, f"rank {rank}'s descriptors grew from {before} to {after}")
    before, after = (max(sample["files"] for sample in part) for part in (middle, last))
    print(f"files: at most {before}, then {after}")
    expected.expect(after <= before, f"the folder's files grew from {before} to {after}")
    third = len(times) // 3
    before, after = statistics.median(times[third:2 * third]), statistics.median(times[2 * third:])
    print(f"median step: {1e3 * before:.3f} ms, then {1e3 * after:.3f} ms")
    expected.expect(not options.steady or after <= 1.5 * before, "steps became slower")
    sys.exit(expected.failures > 0)


main()
