# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""test_restarts.py CASE KOZERO MPIEXEC DECK [--kills N] [--seed S] [--steps N]: `kozero.sh --restarts N train`.

Ranks, launchers and hosts die at random moments; the finished run has the weights of an undisturbed one. Hosts are
namespaces of this machine (tests/cluster), so that case needs root. Exit status 77: it cannot run here. Prints the
kills, the steps that were computed again, and the times from a death to the next step. Linux, Python 3.9 or newer.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import job
from restarted_job import Script, below, kill, status_on_hosts

EVERY = 5
# Each message waits 5 ms, so that a step takes some 50 ms; the bits stay.
SLOW = [f"checkpoint.every={EVERY}", "comm.backend=mpi", "comm.latency_us=5000", "comm.timeout_s=5", "log.every=1"]


class Failures:
    def __init__(self, script):
        self.script, self.count = script, 0

    def expect(self, holds, what):
        if holds:
            return
        self.count += 1
        said = self.script.said.read_text(errors="replace") if hasattr(self.script, "said") else ""
        print(f"FAILED: {what}\n{said[-6000:]}")


def refusals(script, arguments):
    """One line each, and no run."""
    script.said = script.folder / "said.txt"
    failures = Failures(script)

    def refused(status, text, options, *overrides, hosts=None, **settings):
        (script.folder / "hosts").write_text(hosts or "")
        ended = subprocess.run(script.command(options, *overrides), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, env=script.environment(**settings), cwd=script.folder, timeout=60)
        script.said.write_bytes(ended.stdout)
        said = ended.stdout.decode().splitlines()
        failures.expect(ended.returncode == status and len(said) == 1 and re.search(text, said[0]),
                        f"{options} {overrides} {hosts!r}: status {ended.returncode}, {said}, wanted {status} and one line {text}")
        failures.expect(not (script.folder / "run").exists(), "a run has begun")

    some = ["--restarts", "2", "--hosts", "hosts", "-n", "2"]
    refused(2, r"checkpoint\.every = 0: --restarts starts a run again from its newest", ["--restarts", "2"], "checkpoint.every=0")
    refused(2, r"checkpoint\.resume = \"none\": with --restarts accepted is \"auto\"", ["--restarts", "2"], "checkpoint.resume=none")
    refused(2, "--restarts 'x' is not a number", ["--restarts", "x"])
    refused(2, "--restarts 'y' is not a number", ["--restarts=y"])
    refused(2, "--restarts '08' is not a number", ["--restarts", "08"])
    refused(2, "--hosts wants a file", ["--hosts", ""])
    refused(2, "--hosts none: not a file", ["--hosts=none"])
    refused(2, "inside a job of Slurm or mpiexec use inputs/slurm", ["--restarts", "2"], SLURM_JOB_ID="7")
    refused(2, "hosts names no host", some, hosts="# nothing\n\n")
    refused(2, "hosts:2: 'b slot=2': accepted: HOST, HOST:N or 'HOST slots=N'", some, hosts="a\nb slot=2\n")
    for line in ("a:0", "a_,b", "::1", "a slots=", "a slots=2 3"):
        refused(2, f"hosts:1: '{line}': accepted", some, hosts=f"{line}\n")
    refused(2, "hosts:3: a is there twice; name it once", some, hosts="a:1\nb slots=1\nA slots=2\n")
    refused(2, "-n 6: hosts has 5 slots; give fewer ranks", [*some[:-1], "6"],
            hosts="\ufeffa:2 ifname=eth0\r\nb max_slots=4 slots = 2  # two\r\n\tc\r\n")
    refused(2, "KOZERO_PROBE_S = 0.5: accepted: whole seconds", some, hosts="a:2\n", KOZERO_PROBE_S="0.5")
    refused(2, "-n 9: hosts has 5 slots", ["--hosts", "hosts", "-n", "9"], "checkpoint.every=0", hosts="a:5\n")
    ssh = script.folder / "ssh"
    ssh.write_text('#!/bin/sh\n[ "$1" = -oBatchMode=yes ] || exit 0\necho "me@b: Permission denied (publickey,password)." >&2\nexit 255\n')
    ssh.chmod(0o755)
    refused(5, "host b: ssh would ask for a password, .*'ssh -oBatchMode=yes b true' must work", some, hosts="b:2\n",
            HYDRA_LAUNCHER_EXEC=str(ssh))
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host b port 22: No route to host' >&2\nexit 255\n")
    refused(5, r"host b does not answer ssh \(2 s to connect, 10 s to reply: .*No route to host", some, hosts="b:2\n", HYDRA_LAUNCHER_EXEC=str(ssh))
    return failures.count


def gives_up(script, arguments):
    """Every start is killed before it saves: N restarts, the reason, status 5."""
    failures = Failures(script)
    supervisor = script.start(["--restarts", "2", "-n", "2"], *SLOW, "run.steps=100000", "checkpoint.every=50000")
    deaths = 0
    while supervisor.poll() is None and deaths < 10:
        time.sleep(0.1)
        if script.rows() and (ranks := below(supervisor.pid, "kozero")):
            os.kill(ranks[0], signal.SIGKILL)
            deaths += 1
            while supervisor.poll() is None and set(ranks) & set(below(supervisor.pid, "kozero")):
                time.sleep(0.02)
    said = script.said.read_text()
    failures.expect(supervisor.wait() == 5, f"status {supervisor.returncode}, wanted 5")
    failures.expect(deaths == 3, f"{deaths} starts, wanted 3")
    failures.expect("gave up after 2 restarts without a new checkpoint in" in said, "no line with the reason")
    return failures.count


def stop_signal(script, arguments):
    """A signal stops the run, which saves and is not started again: to the script alone, and to its process group, as
    Ctrl-C's is."""
    failures = Failures(script)
    for send in (os.kill, os.killpg):
        supervisor = script.start(["--restarts", "2", "-n", "2"], *SLOW, "run.steps=100000")
        before = len(script.rows())
        while supervisor.poll() is None and len(script.rows()) == before:
            time.sleep(0.05)
        send(supervisor.pid, signal.SIGTERM)
        failures.expect(supervisor.wait(60) == 75, f"{send.__name__}: status {supervisor.returncode}, wanted 75")
        said = script.said.read_text()
        failures.expect("kozero: restart" not in said, f"{send.__name__}: it was started again")
        failures.expect("--restarts 2 -n 2 train" in said, f"{send.__name__}: the command to go on lacks --restarts")
    return failures.count


def words_of(process):
    """Its command line; empty if it has ended."""
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def signal_in_a_pause(script, arguments):
    """SIGTERM while the script waits before the next start ends it at once. A start has a status file of its own, which
    ranks that were cut off cannot find later."""
    failures = Failures(script)
    supervisor = script.start(["--restarts", "5", "-n", "2"], *SLOW, "run.steps=100000", "checkpoint.every=50000")
    pauses = lambda: [process for process in below(supervisor.pid, "sleep") if words_of(process) == [b"sleep", b"2"]]
    files = set()
    end = time.monotonic() + 60
    while supervisor.poll() is None and time.monotonic() < end and not pauses():
        now = list(script.folder.glob(".run.status.*"))
        failures.expect(len(now) <= 1, f"the files {now} at once")
        files.update(now)
        if script.rows() and (ranks := below(supervisor.pid, "kozero")):
            kill(ranks[0])
        time.sleep(0.02)
    failures.expect(len(files) >= 3, f"{len(files)} files of the exit status in 3 starts")
    begun = time.monotonic()
    supervisor.send_signal(signal.SIGTERM)
    failures.expect(supervisor.wait(60) == 75, f"status {supervisor.returncode}, wanted 75")
    failures.expect(time.monotonic() - begun < 1.5, "it waited for the end of the pause")
    failures.expect("stopped by SIGTERM while no rank ran" in script.said.read_text(), "no line on the signal")
    failures.expect(not re.search(r"kill: .*No such process", script.said.read_text()), "the signal went to a process that has ended")
    return failures.count


def signal_before_a_start(script, arguments):
    """SIGTERM while hosts are asked ends the script before a rank starts."""
    failures = Failures(script)
    ssh = script.folder / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 1\n")
    ssh.chmod(0o755)
    (script.folder / "hosts").write_text("a\nb\n")
    supervisor = script.start(["--hosts", "hosts", "-n", "2"], 'run.stop_signals=["SIGHUP"]', HYDRA_LAUNCHER_EXEC=str(ssh))
    while supervisor.poll() is None and not below(supervisor.pid, "ssh"):
        time.sleep(0.02)
    supervisor.send_signal(signal.SIGTERM)
    failures.expect(supervisor.wait(60) == 75, f"status {supervisor.returncode}, wanted 75")
    said = script.said.read_text().splitlines()
    failures.expect(len(said) == 1 and "stopped by SIGTERM while no rank ran" in said[0], f"it says {said}")
    failures.expect(not (script.folder / "run").exists(), "a run has begun")
    return failures.count


class Killer:
    """Kills, and what a kill costs."""

    def __init__(self, script, supervisor, random_state):
        self.script, self.supervisor, self.random = script, supervisor, random_state
        self.kinds, self.seconds, self.again = [], [], []

    def wait_for_a_step(self, after):
        """Until a step is recorded after that time; its (time, step), or None at the run's end."""
        while True:
            rows = [row for row in self.script.rows() if row[0] > after]
            if rows:
                return rows[-1]
            if self.supervisor.poll() is not None:
                return None
            time.sleep(0.02)

    def disturb(self, kind, action):
        """One death at a random moment, then the wait for the next step. Returns False at the run's end."""
        if self.wait_for_a_step(time.time()) is None:
            return False
        time.sleep(self.random.uniform(0, 0.4))
        while True:
            if self.supervisor.poll() is not None:
                return False
            death = time.time()
            if action():
                break
            time.sleep(0.02)  # there was nothing to kill
        self.kinds.append(kind)
        # Rows that were recorded between the death and the end of the last rank are not of the next start.
        gone = self.script.said.stat().st_size
        while self.supervisor.poll() is None and b"kozero: restart (" not in self.script.said.read_bytes()[gone:]:
            time.sleep(0.02)
        restart = time.time()
        before = [step for _, step in self.script.rows()]  # with those that were computed after the death
        row = self.wait_for_a_step(restart)
        if row is not None:
            first = next(each for each in self.script.rows() if each[0] > restart)
            self.seconds.append(first[0] - death)
            self.again.append(max(before, default=0) - first[1] + 1)
        return True

    def rank(self):
        ranks = below(self.supervisor.pid, "kozero")
        return bool(ranks) and kill(self.random.choice(ranks))

    def all_ranks(self):
        return any([kill(rank) for rank in below(self.supervisor.pid, "kozero")])

    def launcher(self):
        found = below(self.supervisor.pid, "mpiexec")
        return bool(found) and kill(found[0])

    def report(self):
        if not self.seconds:
            print(f"{len(self.kinds)} deaths, and no step after one")
            return
        kinds = {kind: self.kinds.count(kind) for kind in sorted(set(self.kinds))}
        print(f"{len(self.kinds)} deaths {kinds}; from a death to the next step: median {statistics.median(self.seconds):.1f} s, "
              f"longest {max(self.seconds):.1f} s; steps computed again: at most {max(self.again)}, checkpoint.every is {EVERY}")


def finish(script, supervisor, killer, failures, wanted):
    status = supervisor.wait(300)
    killer.report()
    failures.expect(status == 0, f"status {status}, wanted 0")
    failures.expect(len(killer.kinds) == wanted, f"{len(killer.kinds)} deaths, wanted {wanted}")
    equal, said = script.equal_weights()
    failures.expect(equal, f"other weights than those of the undisturbed run: {said}")
    # A save is written beside the next steps, so the one under way at a death may be lost too.
    again = max(killer.again, default=0)
    failures.expect(again <= 2 * EVERY, f"{again} steps were computed again")
    failures.expect(not list(script.folder.glob(".run.status*")), "the file of the exit status is left")
    failures.expect("restarts.sh" not in script.said.read_text(), "a line of the shell itself")
    if failures.count == 0:
        print("equal weights")


def kills(script, arguments):
    """Ranks, all ranks or mpiexec are killed at random moments. Each start is of the deck that the first one read."""
    script.deck = shutil.copy(script.deck, script.folder / "deck.toml")
    steps = f"run.steps={arguments.steps or 60 + 20 * arguments.kills}"
    script.undisturbed(steps)
    failures = Failures(script)
    supervisor = script.start(["--restarts", "3", "-n", "2"], *SLOW, steps)
    killer = Killer(script, supervisor, random.Random(arguments.seed))
    for _ in range(arguments.kills):
        if script.rows() and "seed = 99" not in script.deck.read_text():
            script.deck.write_text(script.deck.read_text().replace("[run]\n", "[run]\nseed = 99\n", 1))
        kind = killer.random.choice(["rank", "rank", "all_ranks", "launcher"])
        if not killer.disturb(kind, getattr(killer, kind)):
            break
    finish(script, supervisor, killer, failures, arguments.kills)
    return failures.count


def verify_of_one_deck(script, arguments):
    """`kozero.sh verify` starts three programs; a deck that is edited meanwhile does not make them differ."""
    failures = Failures(script)
    deck = pathlib.Path(shutil.copy(script.deck, script.folder / "deck.toml"))
    script.said = script.folder / "said.txt"
    environment = {name: value for name, value in script.environment().items() if name != "OMP_NUM_THREADS"}
    with open(script.said, "wb") as said:
        script.supervisor = subprocess.Popen(["bash", str(script.script), "-n", "1", "verify", "deck.toml", *job.SMALL,
                                              f'data.text=["{script.folder}/text"]'], stdout=said, stderr=subprocess.STDOUT,
                                             env=environment, cwd=script.folder, start_new_session=True)
    while script.supervisor.poll() is None and "equal" not in script.said.read_text():
        time.sleep(0.02)
    deck.write_text(deck.read_text().replace("[run]\n", "[run]\nseed = 99\n", 1))
    failures.expect(script.supervisor.wait(60) == 0, f"status {script.supervisor.returncode}, wanted 0")
    failures.expect(script.said.read_text().count("equal") == 12, "it does not say 12 times that bits are equal")
    return failures.count


def hosts(script, arguments):
    """As kills, on three hosts, which are lost and return too. Runs again inside network_namespaces.sh."""
    if (status := status_on_hosts(3)) is not None:
        return status
    folder = os.environ["HOSTS_FOLDER"]
    steps = f"run.steps={arguments.steps or 120 + 60 * arguments.kills}"
    script.undisturbed(steps)
    failures = Failures(script)
    (script.folder / "hosts").write_text("10.77.0.1:1\n10.77.0.2 slots=1\n10.77.0.3\n")
    # The script finds a lost host before the ranks do.
    supervisor = script.start(["--restarts", "3", "--hosts", "hosts", "-n", "3"], *SLOW, steps, "comm.timeout_s=30")
    killer = Killer(script, supervisor, random.Random(arguments.seed))
    for number in range(arguments.kills):
        kind = "host" if number % 2 == 0 else killer.random.choice(["rank", "launcher"])
        if kind == "host":
            lost = str(killer.random.randint(1, 3))
            lose = lambda: subprocess.run([f"{folder}/lose", lost], stderr=subprocess.DEVNULL).returncode == 0
            going = killer.disturb(kind, lose)
            subprocess.run([f"{folder}/return", lost])
            while supervisor.poll() is None and ranks_of(script) != 3:
                time.sleep(0.1)
        else:
            going = killer.disturb(kind, getattr(killer, kind))
        if not going:
            break
    finish(script, supervisor, killer, failures, arguments.kills)
    failures.expect(" does not answer" in script.said.read_text(), "no host was found lost by asking it")
    failures.expect("answering again: 10.77.0." in script.said.read_text(), "no lost host was used again")
    return failures.count


def ranks_of(script):
    try:
        return len(json.loads((script.folder / "run/ranks.json").read_text()))
    except (OSError, ValueError):
        return 0


CASES = {case.__name__: case for case in (refusals, gives_up, stop_signal, signal_in_a_pause, signal_before_a_start, kills,
                                           verify_of_one_deck, hosts)}

parser = argparse.ArgumentParser()
parser.add_argument("case", choices=CASES)
for name in ("kozero", "mpiexec", "deck"):
    parser.add_argument(name)
parser.add_argument("--kills", type=int, default=4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=0)  # 0: by the number of kills
given = parser.parse_args()
with tempfile.TemporaryDirectory() as scratch:
    script = Script(pathlib.Path(scratch), given)
    try:
        status = CASES[given.case](script, given)
    finally:
        script.end()
sys.exit(status)
