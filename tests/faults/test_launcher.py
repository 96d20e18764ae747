# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""test_launcher.py CASE KOZERO MPIEXEC DECK [--times N]: what kozero.sh makes of signals, deaths and readers.

A run under `kozero.sh -n 2`, with and without --restarts, gets signals before its ranks are up, loses a rank, the
launcher's process or its reader, or cannot start. Each function of CASES is a case; N repeats the random ones. Exit
status 0: all as expected. Linux, Python 3.9 or newer.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import job
from restarted_job import Script, below, kill

LIMIT = 60  # seconds; a job that takes longer hangs
RANKS = ["-n", "2"]
RESTARTS = ["--restarts", "3", "-n", "2"]
LONG = ["run.steps=1000000", "checkpoint.every=100000", "log.every=1000000"]
LINES = 1000  # more than a pipe of 64 KiB takes
CHATTY = [f"run.steps={LINES}", "checkpoint.every=100000", "log.every=1", "train.eval_every=0", "log.sample=0"]
STOPPED = {75, 130, 143, -signal.SIGINT, -signal.SIGTERM}  # the last two before the script's first line


class Case:
    def __init__(self, script, times):
        self.script, self.times, self.failures = script, times, 0
        self.run = script.folder / "run"

    def said(self):
        return self.script.said.read_text(errors="replace")

    def expect(self, holds, what):
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}; it said:\n    " + self.said()[-3000:].replace("\n", "\n    "), flush=True)

    def start(self, options, *overrides, **settings):
        subprocess.run(["rm", "-rf", str(self.run)], check=True)
        return self.script.start(options, *overrides, **settings)

    def wait(self, process, what):
        """The status; "it hangs" after LIMIT seconds, and the job is ended."""
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.expect(False, f"{what}: hangs")
            self.script.end()
            return "it hangs"

    def wait_until(self, holds, process):
        end = time.monotonic() + LIMIT
        while not holds() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)

    def wait_for_steps(self, process, count=3):
        self.wait_until(lambda: len(self.script.rows()) >= count, process)

    def state(self):
        try:
            status = json.loads((self.run / "status.json").read_text())
            return status["state"], status.get("exit_status")
        except OSError:
            return "no status.json", None

    def ranks_end(self, ranks, what):
        end = time.monotonic() + 5
        while time.monotonic() < end and any(job.lives(rank) for rank in ranks):
            time.sleep(0.01)
        self.expect(not any(job.lives(rank) for rank in ranks), f"{what}: ranks live on")


def lost_launcher(case):
    """kill -9 of the launcher's process that starts the ranks of this host."""
    for i in range(case.times or 2):
        restarts = i % 2 == 1
        what = f"{i}: the launcher's process is killed, " + ("--restarts" if restarts else "without --restarts")
        process = case.start(RESTARTS if restarts else RANKS, "run.steps=300" if restarts else "run.steps=1000000",
                             "checkpoint.every=50", "log.every=1")
        case.wait_for_steps(process, 60)
        ranks = below(process.pid, "kozero")
        proxies = below(process.pid, "hydra_pmi_proxy")
        if not proxies:
            return  # another launcher
        kill(proxies[0])
        status = case.wait(process, what)
        case.expect(status == (0 if restarts else 5), f"{what}: status {status}")
        case.expect(restarts or "the launcher's process that started it has ended" in (case.run / "log.txt").read_text(),
                    f"{what}: no line in log.txt")
        case.expect(not restarts or "kozero: restart (without progress: " in case.said(), f"{what}: no restart")
        case.ranks_end(ranks, what)


def lost_rank(case):
    """kill -9 of a rank: status 5, and one line that names it."""
    for i in range(case.times or 3):
        process = case.start(RANKS, *LONG)
        case.wait_for_steps(process)
        lines = (case.run / "ranks.json").read_text()
        rank = i % 2
        killed = json.loads(lines)[rank]["pid"]
        kill(killed)
        status = case.wait(process, "a killed rank")
        case.expect(status == 5, f"{i}: a killed rank: status {status}")
        found = re.findall(rf"^(?:kozero: |\[rank \d\] error: )(rank {rank}\b.*\b{killed}\b.*)$", case.said(), re.M)
        case.expect(len(found) == 1 and "ended without a word" in found[0], f"{i}: rank {rank}, process {killed}, named: {found}")


def early_signals(case):
    """SIGINT to the process group, or SIGTERM to the script, in the first second and a half: none is lost, none hangs."""
    for i in range(case.times or 12):
        restarts, interrupt = i % 2 == 1, i // 2 % 2 == 1
        delay = random.random() * 1.5 if case.times else 0.02 + 0.11 * i
        process = case.start(RESTARTS if restarts else RANKS, *LONG)
        time.sleep(delay)
        ranks = below(process.pid, "kozero")
        if interrupt:
            os.killpg(process.pid, signal.SIGINT)
        else:
            os.kill(process.pid, signal.SIGTERM)
        what = f"{i}: {'SIGINT' if interrupt else 'SIGTERM'} after {delay:.3f} s{', --restarts' if restarts else ''}"
        status = case.wait(process, what)
        case.expect(status in STOPPED, f"{what}: status {status}")
        case.expect(status == 75 or not case.said(), f"{what}: status {status} after the script's first line")
        case.expect(case.state()[0] in ("preempted", "no status.json"), f"{what}: {case.state()}")
        case.expect("kozero: restart (" not in case.said(), f"{what}: started again")
        case.ranks_end(ranks, what)


def second_interrupt(case):
    """Ctrl-C twice within 50 ms: status 130, and status.json says "failed"; or the checkpoint was complete before."""
    for i in range(case.times or 2):
        process = case.start(RESTARTS if i % 2 == 1 else RANKS, *LONG)
        case.wait_for_steps(process)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05 * random.random())
        os.killpg(process.pid, signal.SIGINT)
        status = case.wait(process, f"{i}: Ctrl-C twice")
        accepted = [(130, ("failed", 130)), (75, ("preempted", 75))]
        case.expect((status, case.state()) in accepted, f"{i}: Ctrl-C twice: status {status}, {case.state()}")


def unread_output(case):
    """A reader of standard output that reads nothing stops neither the run nor a stop signal."""
    kozero = [case.script.kozero, *case.script.command([], *CHATTY)[2:]]
    script = case.script.command(RANKS, *CHATTY)
    environment, folder = case.script.environment(), case.script.folder
    case.script.said = folder / "errors"
    for command, stopped in ((kozero, True), (script, True), (script, False)):
        what = f"{command[0]} without a reader" + (", SIGTERM" if stopped else "")
        subprocess.run(["rm", "-rf", str(case.run)], check=True)
        more = ["run.steps=1000000"] if stopped else []
        with open(case.script.said, "wb") as errors:
            process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
                                       env=environment, cwd=folder, start_new_session=True)
        case.script.supervisor = process
        if stopped:
            case.wait_for_steps(process, LINES)
            os.kill(process.pid, signal.SIGTERM)
        status = case.wait(process, what)
        case.expect(status == (75 if stopped else 0), f"{what}: status {status}")
        steps = len(re.findall(r"^step (\d+)/", (case.run / "log.txt").read_text(), re.M))
        case.expect(steps == len(case.script.rows()), f"{what}: log.txt has {steps} of {len(case.script.rows())} lines")
        case.expect(case.state()[0] == ("preempted" if stopped else "finished"), f"{what}: {case.state()}")
        process.stdout.close()
    # A slow reader gets the last line.
    subprocess.run(["rm", "-rf", str(case.run)], check=True)
    slow = "sleep 1; while IFS= read -r line; do last=$line; done; echo \"$last\""
    read = subprocess.run(["bash", "-c", f'"$@" | {{ {slow}; }}', "bash", *script], stdout=subprocess.PIPE, env=environment,
                          cwd=folder, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False).stdout.decode()
    case.expect(read.startswith("output in "), f"the last line that a slow reader gets: {read}")


def failed_starts(case):
    """MPI does not start: one line of kozero, and a status of the table."""
    kozero = [case.script.kozero, *case.script.command([], "run.steps=2")[2:]]
    script = case.script.command(RANKS, "run.steps=2")
    case.script.said = case.script.folder / "said.txt"

    def refused(status, pattern, command, prefix="", **settings):
        ended = subprocess.run(["bash", "-c", prefix + ' exec "$@"', "bash", *command], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=case.script.environment(**settings), cwd=case.script.folder,
                               stdin=subprocess.DEVNULL, timeout=LIMIT, check=False)
        case.script.said.write_bytes(ended.stdout)
        own = [line for line in case.said().splitlines() if re.match(r"kozero: |error: |\[rank \d\] ", line)]
        case.expect(ended.returncode == status and len(own) == 1 and re.search(pattern, own[0]),
                    f"{prefix} {settings}: status {ended.returncode}, {own}, wanted {status} and one line {pattern}")

    start = "MPI did not start: its library ended the program|the ranks did not start: the launcher ended with status"
    for command in (kozero, script, case.script.command(["--restarts", "0", *RANKS], "run.steps=2", "checkpoint.every=1")):
        refused(5, start, command, UCX_TLS="nonsense")
    refused(2, "ulimit -n = 12: MPI and a run open more files; accepted: 64 or more", kozero, "ulimit -n 12;")
    refused(4, "takes .* is the size limit of a file", kozero, "ulimit -f 10;")
    refused(2, "the current folder was deleted", kozero, "mkdir gone; cd gone; rmdir ../gone;")


def leftovers(case):
    """A start with --restarts removes the files of scripts of this host that were killed."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    host = subprocess.run(["bash", "-c", 'echo "$HOSTNAME"'], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    old = [case.script.folder / f".run.{kind}.{host}.{ended.pid}.{number}" for kind in ("status", "ranks") for number in (1, 2)]
    kept = [case.script.folder / f".run.status.{host}.{os.getpid()}.1", case.script.folder / f".run.status.other.{ended.pid}.1"]
    for path in [*old, *kept]:
        path.write_text("")
    process = case.start(RESTARTS, "run.steps=4", "checkpoint.every=2")
    status = case.wait(process, "a run")
    case.expect(status == 0, f"a run: status {status}")
    left = sorted(path for path in case.script.folder.glob(".run.*"))
    case.expect(left == sorted(kept), f"left: {left}")


CASES = {each.__name__: each for each in (lost_launcher, lost_rank, early_signals, second_interrupt, unread_output, failed_starts, leftovers)}

parser = argparse.ArgumentParser()
parser.add_argument("case", choices=CASES)
for each in ("kozero", "mpiexec", "deck"):
    parser.add_argument(each)
parser.add_argument("--times", type=int, default=0)  # 0: a few
given = parser.parse_args()
with tempfile.TemporaryDirectory() as scratch:
    script = Script(pathlib.Path(scratch), given)
    case = Case(script, given.times)
    try:
        CASES[given.case](case)
    finally:
        script.end()
sys.exit(case.failures)
