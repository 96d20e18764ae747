# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""run_case.py: jobs on a small model that a case of test_run_control.py or test_stopping.py starts, signals and
watches.

A Job is one `kozero train` under the launcher; a Case has a folder, its jobs and the number of unexpected results.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["model.layers=2", "model.dim=16", "model.heads=2", "model.seq=16", "train.global_batch=4", "train.micro_batch=2",
         "train.eval_every=0", "checkpoint.every=0", "optim.warmup_steps=0", "optim.schedule=constant",
         "data.tokenizer=bytes", "log.every=1000000"]
FOREVER = "run.steps=1000000"
RANK_NAMES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
PATIENCE = 100  # seconds, for events that take about one second


class Lost(Exception):
    """An awaited event has not happened: the case cannot continue."""


class Job:
    """A running command: on ranks under mpiexec, or alone if ranks is 1."""

    def __init__(self, case, arguments, ranks, prefix, environment):
        launcher = [*case.options.mpiexec.split(), "-n", str(ranks)] if ranks > 1 else []
        self.output = open(case.folder / f"said.{case.number()}", "w+", errors="replace")
        self.process = subprocess.Popen([*prefix, *launcher, case.options.kozero, *arguments], stdout=self.output, cwd=case.folder,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", **environment})

    def said(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def processes(self):
        return [self.process.pid, *descendants(self.process.pid)]

    def ranks(self):
        """The ranks' processes, in rank order."""
        found = {}
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "kozero\n":
                    words = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
                    settings = dict(word.split("=", 1) for word in words if "=" in word)
                    found[int(next((settings[name] for name in RANK_NAMES if name in settings), 0))] = pid
        return [found[rank] for rank in sorted(found)]

    def end(self):
        """The exit status and the output."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = "it hangs"
            self.kill()
        return status, self.said()

    def kill(self):
        for pid in reversed(self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def descendants(pid):
    found = []
    with contextlib.suppress(OSError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


class Case:
    def __init__(self, options, folder):
        self.options, self.folder, self.failures, self.numbers = options, folder, 0, 0
        self.run = folder / "run"
        (folder / "text").write_text("".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(200)))

    def number(self):
        self.numbers += 1
        return self.numbers

    def arguments(self, *overrides):
        return ["train", self.options.deck, *SMALL, 'data.text=["text"]', "run.dir=run", *overrides]

    def start(self, *overrides, ranks=2, prefix=(), **environment):
        """`prefix`: words before the command, such as "nohup"."""
        return Job(self, self.arguments(*overrides), ranks, prefix, environment)

    def expect(self, holds, what, said=""):
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}; it said:\n    " + said.replace("\n", "\n    "), flush=True)

    def expect_said(self, pattern, said, what):
        self.expect(re.search(pattern, said, re.M) is not None, f"{what}: no /{pattern}/", said)

    def expect_end(self, job, status, pattern, what):
        came, said = job.end()
        accepted = status if isinstance(status, tuple) else (status,)
        self.expect(came in accepted, f"{what}: status {came}, wanted {status}", said)
        self.expect_said(pattern, said, what)
        return said

    def status(self):
        if not (self.run / "status.json").exists():
            return {"state": "no status.json"}
        return json.loads((self.run / "status.json").read_text())

    def expect_failed_start(self, step, exit_status, pattern, what):
        """Checks that status.json and log.txt record a failed start after a run that ended at `step`."""
        now = self.status()
        ended = (now["state"], now.get("step"), now.get("exit_status"))
        self.expect(ended == ("failed", step, exit_status), f"{what}: {now}")
        self.expect_said(pattern, now.get("why", ""), f"{what}: why in status.json")
        self.expect("\n" not in now.get("why", ""), f"{what}: why has several lines", now.get("why", ""))
        log = (self.run / "log.txt").read_text(errors="replace")
        self.expect(len(re.findall(r"^\[rank \d\] error: ", log, re.M)) == 1, f"{what}: not one error in log.txt", log)

    def steps(self):
        """The steps in metrics.jsonl. Every line must be complete."""
        with contextlib.suppress(FileNotFoundError):
            whole = (self.run / "metrics.jsonl").read_text().splitlines(keepends=True)
            return [json.loads(line)["step"] for line in whole]
        return []

    def wait_for(self, holds, job, what):
        start = time.monotonic()
        while not holds():
            if job.process.poll() is not None or time.monotonic() - start > PATIENCE:
                self.expect(False, f"waited in vain for {what}", job.said())
                job.kill()
                raise Lost
            time.sleep(0.01)

    def wait_for_steps(self, job, count=3):
        """Waits until metrics.jsonl has so many steps."""
        path = self.run / "metrics.jsonl"
        self.wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= count, job, f"{count} steps")

    def wait_for_new_steps(self, job):
        """Waits until a run, which may continue after another run's steps, has done some steps itself."""
        self.wait_for(lambda: re.search(r"^(resume |step 1/)", job.said(), re.M), job, "its resume point")
        before = self.steps()
        self.wait_for(lambda: self.steps()[-1:] > before[-1:] and len(self.steps()) > 5, job, "steps of its own")

    def checkpoints(self):
        return sorted(path.name for path in self.run.glob("step_*[0-9]"))

    def run_printed_command(self, said, *more):
        """Runs the command after "to go on: " in a shell, with further overrides."""
        command = re.findall(r"; to go on: (.*)$", said, re.M)[-1]
        if command.startswith("mpiexec "):
            command = command.replace("mpiexec", self.options.mpiexec, 1)
        done = subprocess.run(["sh", "-c", command + " " + " ".join(more)], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}, timeout=PATIENCE,
                              errors="replace", check=False)
        return done.returncode, done.stdout + done.stderr

    def hydra(self):
        """Whether the launcher is MPICH's."""
        said = subprocess.run([*self.options.mpiexec.split(), "--version"], capture_output=True, text=True, check=False).stdout
        return "HYDRA" in said

    def clear(self):
        shutil.rmtree(self.run, ignore_errors=True)


def blocks(pid, kind):
    """Whether the process is kozero and its first thread blocks the signal. From then on the run handles stop
    signals."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return status.startswith("Name:\tkozero") and kind in signals_in(status, "SigBlk")
    return False


def signals_in(status, name):
    """The signals of a mask in a file /proc/PID/status."""
    mask = int(re.search(rf"^{name}:\s*([0-9a-f]+)", status, re.M)[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1 == 1}


def run_one_case(cases):
    """A test program's main: runs the case that the command line names, a function of `cases`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    for name in ("kozero", "mpiexec", "preload", "deck"):
        parser.add_argument(name)
    parser.add_argument("--times", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = Case(options, pathlib.Path(folder))
        with contextlib.suppress(Lost):
            cases[options.case](case)
    print("all as expected" if case.failures == 0 else f"{case.failures} were not as expected")
    sys.exit(case.failures > 0)
