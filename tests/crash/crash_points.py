# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""crash_points.py CASE KOZERO MPIEXEC PRELOAD DECK [--every K] [--kills N]: saves that are killed or fail at a counted
call.

Each trial begins with a run's folder that has a checkpoint of step 1, continues over steps 2 and 3 (a save each; keep
2, so that one is pruned) on 2 ranks with failing_calls.cpp preloaded, and is ended at the n-th call that changes a
checkpoint's files. Then the run must resume from a checkpoint no older than the newest one reported complete, and end
in the state of an undisturbed run: the hashes of all datasets are compared. CASE:
  kill   N random kills of one rank or of all, among all calls of all ranks   fail   every K-th call fails, ENOSPC and EIO
  full   a file system too small for the next checkpoint                      modes  one thread only; on_error = continue
  memory the memory for HDF5's metadata is short
Exit status 0: all as expected, 1: not as expected, 77: the case cannot run here.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
from job import HANGS, RANKS, Expectations, Job, complete_steps, datasets, train_command, write_text  # noqa: E402

NO_SPACE, IO_ERROR, NO_MEMORY = 28, 5, 12  # errno
TEXTS = {NO_SPACE: "No space left on device", IO_ERROR: "Input/output error"}


class Trials(Expectations):
    def __init__(self, options, folder):
        super().__init__()
        self.options, self.folder = options, folder
        write_text(folder)
        self.train(folder / "whole", "checkpoint.keep=0")
        self.hashes = {step: datasets(folder / "whole", step) for step in (1, 2, 3)}
        self.train(folder / "begun", "run.max_minutes=1e-9")

    def train(self, run, *overrides, preload=None):
        """Continues the run, or begins it. Returns its exit status (HANGS if it did not end) and its output."""
        command = train_command(self.options.kozero, self.options.deck, self.folder, run, "checkpoint.every=1", "run.steps=3",
                                *overrides)
        settings = {}
        if preload is not None:
            settings = {"LD_PRELOAD": self.options.preload, **preload}
        job = Job(self.options.mpiexec, RANKS, command, self.folder / "said", settings)
        status, _ = job.wait(60)
        return status, job.said()

    def fresh(self):
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.folder / "begun", run)
        return run

    def train_counted(self, run, *overrides, **preload):
        """As train(); also returns every counted call's "call path" by (rank, number)."""
        log = self.folder / "calls"
        for old in self.folder.glob("calls.*"):
            old.unlink()
        status, said = self.train(run, *overrides, preload={"KOZERO_CALLS_UNDER": f"{run}/step_", "KOZERO_CALLS_LOG": log,
                                                            **preload})
        calls = {}
        for rank in range(RANKS):
            mine = pathlib.Path(f"{log}.{rank}")  # missing if the rank was ended before its first call
            for line in mine.read_text().splitlines() if mine.exists() else []:
                number, what = line.split(" ", 1)
                calls[rank, int(number)] = what.replace(f"{run}/", "")
        return status, said, calls

    def counted_calls(self, overrides):
        """(rank, number, "call path") of the calls of an undisturbed run."""
        status, said, calls = self.train_counted(self.fresh(), *overrides)
        self.expect(status == 0, "the run that counts calls", said)
        return [(rank, number, what) for (rank, number), what in calls.items()]

    def goes_on(self, run, said_before, name):
        """Checks after an interruption: the newest complete checkpoint loads, and the final state is the undisturbed
        run's."""
        complete = complete_steps(said_before)
        status, said = self.train(run, "checkpoint.keep=0")
        self.expect(status == 0, f"{name}: the run after it ends with status {status}", said)
        step = int((re.findall(r"^resume       after step (\d+),", said, re.M) or [0])[-1])
        self.expect(step >= max([1, *complete]), f"{name}: went on from step {step}, complete were {complete}", said)
        self.expect("skipped" not in said, f"{name}: a checkpoint under its own name is broken", said)
        for done in {step, 3}:
            same = (run / f"step_{done:09}").exists() and datasets(run, done) == self.hashes[done]
            self.expect(same, f"{name}: step {done} is not what was computed", said)

    def trial(self, call, action, mode):
        rank, number, _ = call
        run = self.fresh()
        status, said, calls = self.train_counted(run, mode, "checkpoint.keep=2", KOZERO_CALLS_AT=number,
                                                 KOZERO_CALLS_RANK=rank, KOZERO_CALLS_DO=action)
        # During training the order of the save's calls is not always the same.
        what = calls.get((rank, number), "none")
        name = f"{action} at rank {rank}'s call {number} ({what}), {mode}"
        self.expect(status not in (0, HANGS) or not str(action).startswith("kill"), f"{name}: status {status}", said)
        if action in TEXTS:
            self.check_message(status, said, what, action, name)
        self.goes_on(run, said, name)

    def check_message(self, status, said, what, error, name):
        errors = [line for line in said.splitlines() if line.startswith("[rank")]
        if status == 0:  # files of the failed save may stay: the next save removes them
            self.expect(what.startswith("unlink"), f"{name}: nobody noticed", said)
            return
        wanted = r"\[rank 0\] error: the checkpoint of step [23]: .*/step_00000000\d.*" + TEXTS[error]
        if what.endswith("/run"):  # also synced for the weights file
            wanted = r"\[rank 0\] error: .*/run: cannot fsync: " + TEXTS[error]
        self.expect(status == 4 and len(errors) == 1 and re.match(wanted, errors[0]) is not None,
                    f"{name}: status {status}, wanted 4 and one line that names file and reason", said)
        # Removing an older checkpoint needs no space; all other errors tell the needed and the free space.
        self.expect(what.startswith(("unlink", "rename", "fsync /")) or " bytes) are free" in said, f"{name}: no bytes needed", said)


MODES = ("checkpoint.async=true", "checkpoint.async=false")


def kill(trials, options):
    calls = trials.counted_calls(["checkpoint.keep=2"])
    chance = random.Random(options.seed)
    for i in range(options.kills):
        trials.trial(chance.choice(calls), chance.choice(("kill", "kill all")), MODES[i % 2])
    print(f"{options.kills} kills among {len(calls)} calls, seed {options.seed}")


def fail(trials, options):
    calls = trials.counted_calls(["checkpoint.keep=2"])
    chosen = calls[options.first % options.every::options.every]
    for i, call in enumerate(chosen):
        trials.trial(call, (NO_SPACE, IO_ERROR)[i % 2], MODES[i // 2 % 2])
    print(f"{len(chosen)} of {len(calls)} calls failed")


def modes(trials, options):
    for limited in ("all", "0", "1"):
        status, said = trials.train(trials.fresh(), preload={"KOZERO_MPI_FUNNELED": limited})
        synchronous = "saving is synchronous: this MPI may be called by one thread alone" in said
        trials.expect(status == 0 and synchronous, f"one thread on rank {limited}", said)
    run = trials.fresh()
    rename = next(call for call in trials.counted_calls(["checkpoint.keep=2"]) if call[2] == "rename step_000000002.partial")
    for mode in MODES:
        run = trials.fresh()
        status, said = trials.train(run, mode, "checkpoint.on_error=continue", preload={
            "KOZERO_CALLS_UNDER": f"{run}/step_", "KOZERO_CALLS_AT": rename[1], "KOZERO_CALLS_RANK": rename[0],
            "KOZERO_CALLS_DO": NO_SPACE})
        wanted = r"^warning      the checkpoint of step 2: .*step_000000002: cannot rename .*No space left on device; the " \
                 r"checkpoint takes .*; training goes on"
        trials.expect(status == 0 and re.search(wanted, said, re.M) is not None, f"on_error = continue, {mode}", said)
        left = sorted(path.name for path in run.glob("step_*"))
        trials.expect(left == ["step_000000001", "step_000000003"], f"on_error = continue, {mode}: {left}", said)
        trials.expect(datasets(run, 3) == trials.hashes[3], f"on_error = continue, {mode}: another state", said)


def memory(trials, options):
    """Every K-th call that writes HDF5's metadata to memory fails: an error of memory, not of the disk, and no crash.

    Of the calls up to the second ftruncate, where H5Fclose begins: what that writes lies in memory that is there already.
    """
    log = trials.folder / "memory_calls"
    under = {"KOZERO_CALLS_UNDER": "/memfd:kozero", "KOZERO_CALLS_RANK": 0}
    status, said = trials.train(trials.fresh(), preload={**under, "KOZERO_CALLS_LOG": log})
    calls = [line.split()[1] for line in pathlib.Path(f"{log}.0").read_text().splitlines()]
    trials.expect(status == 0 and calls.count("ftruncate") > 1, f"{len(calls)} calls counted", said)
    for mode in MODES:
        for number in range(1, calls.index("ftruncate", calls.index("ftruncate") + 1) + 1, options.every):
            run = trials.fresh()
            status, said = trials.train(run, mode, preload={**under, "KOZERO_CALLS_AT": number, "KOZERO_CALLS_DO": NO_MEMORY})
            errors = [line for line in said.splitlines() if line.startswith("[rank")]
            wanted = r"\[rank 0\] error: the checkpoint of step 2: too little memory for the metadata of .*/step_000000002.partial/" \
                     r"state.h5, not too little disk: .*; .* of memory are available; older"
            trials.expect(status == 4 and len(errors) == 1 and re.match(wanted, errors[0]) is not None and "bytes) are free" not in said,
                          f"no memory at call {number}, {mode}: status {status}", said)
            trials.goes_on(run, said, f"no memory at call {number}, {mode}")


def full(trials, options):
    disk = trials.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        print("skipped: a small file system cannot be mounted here: " + mounted.stderr.strip())
        sys.exit(77)
    try:
        run = disk / "run"
        shutil.copytree(trials.folder / "begun", run)
        for mode in MODES:
            (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - (1 << 18)))
            before = sorted(path.name for path in run.iterdir())
            status, said = trials.train(run, mode)
            takes = r"takes .* bytes\) and .* bytes\) are free; make room"
            wanted = rf'^\[rank 0\] error: run.dir = "{run}": a checkpoint {takes}, or give a folder on a larger file system$'
            trials.expect(status == 4 and re.search(wanted, said, re.M) is not None, f"a full disk, {mode}: status {status}", said)
            trials.expect(before == sorted(path.name for path in run.iterdir()), f"a full disk, {mode}: something was changed", said)
            status, said = trials.train(run, mode, "checkpoint.on_error=continue")
            wanted = [rf'^warning      run.dir = "{run}": a checkpoint {takes}',
                      rf"^warning      the checkpoint of step [23]: .*: not begun: the checkpoint {takes}"]
            trials.expect(status == 0 and all(re.search(one, said, re.M) for one in wanted),
                          f"a full disk, continue, {mode}: status {status}", said)
            (disk / "ballast").unlink()
        trials.goes_on(run, "", "a full disk")
    finally:
        subprocess.run(["umount", disk], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("kill", "fail", "full", "memory", "modes"))
    for name in ("kozero", "mpiexec", "preload", "deck"):
        parser.add_argument(name)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(options, pathlib.Path(folder))
        globals()[options.case](trials, options)
    print("all as expected" if trials.failures == 0 else f"{trials.failures} were not as expected")
    sys.exit(trials.failures > 0)


main()
