# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""job.py: a training job that a trial starts, watches, disturbs and ends; and checks of its folder afterwards.

Used by fault_study.py, soak.py and ../crash/crash_points.py. Python 3.9 or newer with only its standard library, Linux.
"""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

RANKS = 2
SMALL = ["model.layers=1", "model.dim=16", "model.heads=2", "model.seq=16", "train.global_batch=4", "train.micro_batch=2",
         "train.eval_every=0", "optim.warmup_steps=0", "optim.schedule=constant", "data.tokenizer=bytes"]
HANGS = 124  # the status of a job that exceeds its time limit


def write_text(folder):
    (folder / "text").write_text("".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(200)))


def train_command(kozero, deck, folder, run, *overrides):
    """Continues the run, or begins it."""
    return [kozero, "train", deck, *SMALL, f'data.text=["{folder}/text"]', f"run.dir={run}", "checkpoint.resume=auto", *overrides]


def with_environment(command, settings):
    return ["env", "OMP_NUM_THREADS=1", "OMP_PROC_BIND=false", *(f"{key}={value}" for key, value in settings.items()), *command]


def datasets(run, step):
    """The hashes of a checkpoint's datasets."""
    return json.loads((run / f"step_{step:09}" / "manifest.json").read_text())["datasets"]


def complete_steps(said):
    """The steps whose checkpoints a job reported complete."""
    return [int(step) for step in re.findall(r"^checkpoint   .*/step_(\d+):", said, re.M)]


def processes():
    """(process, parent) of all processes of this machine."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = pathlib.Path(entry.path, "stat").read_text()
        except OSError:
            continue
        yield int(entry.name), int(stat.rsplit(")", 1)[1].split()[1])


def lives(process):
    """Whether the process runs. A zombie does not."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Job:
    """`mpiexec -n ranks command`, or the command alone if ranks is 0. All its output goes to the file `said`."""

    def __init__(self, mpiexec, ranks, command, said, settings=None):
        self.path, self.seen, self.orphans_s = pathlib.Path(said), {}, 0.0
        launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks > 0 else []
        self.file = open(self.path, "wb")
        self.start = time.monotonic()
        self.process = subprocess.Popen([*launcher, *with_environment(command, settings or {})], stdout=self.file,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def said(self):
        return self.path.read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def ranks(self):
        """The existing processes of ranks, by rank. They are remembered, so that end() also ends orphans."""
        parents = dict(processes())
        for process in parents:
            if process not in self.seen and (process == self.process.pid or self.descends(process, parents)):
                self.seen[process] = None
        ranks = {}
        for process in self.seen:
            try:
                if pathlib.Path(f"/proc/{process}/comm").read_text().strip() != "kozero":
                    continue
                words = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            named = [word for word in words if re.match(rb"(PMI_RANK|PMIX_RANK|OMPI_COMM_WORLD_RANK)=", word)]
            ranks[int(named[0].split(b"=")[1]) if named else 0] = process
        return ranks

    def descends(self, process, parents):
        while process in parents and process > 1:
            process = parents[process]
            if process == self.process.pid or process in self.seen:
                return True
        return False

    def until(self, holds, seconds):
        """Waits until holds() is true, the job ends, or the time is over. Returns holds()."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return True
            if not self.running():
                return holds()
            time.sleep(0.004)
        return False

    def wait(self, seconds):
        """Waits for the end. Returns the status, as a shell gives it, and the seconds of the wait."""
        start = time.monotonic()
        self.ranks()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = HANGS
        took = time.monotonic() - start
        self.orphans_s = self.seconds_of_orphans(seconds)
        self.end()
        return (128 - status if status < 0 else status), took

    def seconds_of_orphans(self, most):
        """How long the job's processes live after its end, in seconds."""
        start = time.monotonic()
        while time.monotonic() - start < most and not self.running() and any(lives(process) for process in self.seen):
            time.sleep(0.01)
        return time.monotonic() - start

    def end(self):
        """Ends the job's remaining processes, by process number."""
        self.ranks()
        for process in [*self.seen, self.process.pid]:
            try:
                if os.getsid(process) == self.process.pid or process in self.seen:
                    os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self.process.wait()
        self.file.close()


class Expectations:
    """Counts unexpected results, and prints them with the job's output."""

    def __init__(self):
        self.failures = 0

    def expect(self, holds, what, said=""):
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}; it said:\n    " + said.replace("\n", "\n    "), flush=True)
        return holds
