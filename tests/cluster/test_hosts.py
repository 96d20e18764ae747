# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""test_hosts.py CASE KOZERO MPIEXEC DECK CLOCK: runs and errors on several hosts, which are namespaces of this machine.

Training by MPICH's mpiexec and by kozero.sh, over TCP, with the weights of one rank. Errors, each of which must end in
one line with cause and remedy. CLOCK is the library of other_clock.cpp. Needs root; exit status 77: it cannot run here.
Linux, Python 3.9 or newer.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
import job
from restarted_job import Script, below, kill, status_on_hosts

MODEL = ["model.layers=2", "train.global_batch=8", "train.micro_batch=1", "run.steps=6", "log.every=1"]
SLOW = ["comm.backend=mpi", "comm.latency_us=5000"]  # a step takes about 0.1 s; the bits stay
LARGE = ["zero.stage=3", "model.dim=1024", "model.heads=8", "model.layers=8"]  # 0.4 GB of weights
HANGS = 124
LISTS = {"mpich": "10.77.0.1:2\n10.77.0.2:2  # two\n", "open_mpi": "10.77.0.1 slots=2\n10.77.0.2 slots=2 max_slots=4\n"}


def address(host):
    return f"10.77.0.{host}"


class Hosts:
    """What happens to a host; the programs of network_namespaces.sh."""

    def __init__(self):
        self.folder = os.environ["HOSTS_FOLDER"]

    def on(self, host, command, check=True):
        return subprocess.run([f"{self.folder}/launcher", address(host), command], check=check, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).stdout.decode()

    def do(self, what, host):
        """what: lose, cut or return."""
        subprocess.run([f"{self.folder}/{what}", str(host)], stderr=subprocess.DEVNULL)

    def mount(self, host, path, over=None):
        """Puts the file `over`, or an empty folder, in place of `path`, on this host alone."""
        what = "-t tmpfs private" if over is None else f"--bind {shlex.quote(str(over))}"
        self.on(host, f"mount {what} {shlex.quote(str(path))}")

    def unmount(self, host, path):
        self.on(host, f"umount {shlex.quote(str(path))}")


class Case:
    def __init__(self, script, arguments):
        self.script, self.arguments, self.folder, self.hosts = script, arguments, script.folder, Hosts()
        self.failures, self.said, self.process = 0, "", None

    def expect(self, holds, what):
        if not holds:
            self.failures += 1
            print(f"FAILED: {what}\n    " + self.said[-6000:].replace("\n", "\n    "), flush=True)

    def command(self, run, *overrides):
        return [self.arguments.kozero, "train", self.arguments.deck, *job.SMALL, *MODEL, f"run.dir={self.folder}/{run}",
                f'data.text=["{self.folder}/text"]', *overrides]

    def launch(self, slots, command, before=None):
        """mpiexec with a host file: slots[i] ranks on host i + 1. before: {rank: what comes before its program}."""
        file = self.folder / "hosts"
        file.write_text("".join(f"{address(i + 1)}:{number}\n" for i, number in enumerate(slots)))
        launcher = [*shlex.split(self.arguments.mpiexec), "-f", str(file)]
        ranks = ["-n", str(sum(slots)), *command]
        if before:
            ranks = [":", *(word for rank in range(sum(slots)) for word in ("-n", "1", *before.get(rank, ()), *command, ":"))][1:-1]
        with open(self.folder / "said.txt", "wb") as said:
            self.process = subprocess.Popen([*launcher, *ranks], stdout=said, stderr=subprocess.STDOUT, cwd=self.folder,
                                            stdin=subprocess.DEVNULL, env=self.script.environment())

    def wait(self, seconds=60):
        """The status, or HANGS, and the seconds that it took."""
        start = time.monotonic()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = HANGS
            self.end()
        self.said = (self.folder / "said.txt").read_text(errors="replace")
        return status, time.monotonic() - start

    def end(self):
        if self.process is not None and self.process.poll() is None:
            for process in [self.process.pid, *below(self.process.pid, "")]:
                kill(process)
            self.process.wait()

    def train(self, slots, run, *overrides, before=None):
        self.launch(slots, self.command(run, *overrides), before)
        return self.wait()[0]

    def launch_script(self, lines, options, *overrides):
        """`kozero.sh --hosts FILE`, with these lines in the file."""
        (self.folder / "list").write_text(lines)
        with open(self.folder / "said.txt", "wb") as said:
            self.process = subprocess.Popen(self.script.command(["--hosts", "list", *options], *overrides), stdout=said,
                                            stderr=subprocess.STDOUT, cwd=self.folder, stdin=subprocess.DEVNULL,
                                            env=self.script.environment())

    def script_on(self, lines, options, *overrides):
        self.launch_script(lines, options, *overrides)
        return self.wait()[0]

    def refused(self, status, text, ended, run="run", begin=r"\[rank \d+\] error: ", lines=1):
        """One line with that beginning, and no step. lines=2: of two ranks that cannot know of each other."""
        said = re.findall(rf"^{begin}.*", self.said, re.M)
        self.expect(ended == status and 1 <= len(said) <= lines and all(re.search(text, line) for line in said),
                    f"status {ended}, wanted {status} and {lines} line {text}")
        self.expect(not self.steps(run), "a step was spent")

    def steps(self, run):
        try:
            return len((self.folder / run / "metrics.jsonl").read_text().splitlines())
        except OSError:
            return 0

    def until_step(self, run, step):
        end = time.monotonic() + 30
        while self.steps(run) < step and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.02)

    def same_weights(self, run, what, alone="alone"):
        equal, difference = self.script.equal_weights(alone, run)
        self.expect(equal, f"{what}: other weights than those of one rank: {difference}")

    def alone(self, run="alone", *overrides):
        subprocess.run(self.command(run, "run.ranks=1", *overrides), check=True, stdout=subprocess.DEVNULL,
                       env=self.script.environment(), cwd=self.folder)


def trains_equally(case, slots, stages, *overrides):
    for stage in stages:
        run = f"stage_{stage}"
        status = case.train(slots, run, f"zero.stage={stage}", *overrides)
        case.expect(status == 0 and re.search(rf"^ZeRO +stage {stage} on {sum(slots)} ranks", case.said, re.M),
                    f"stage {stage} on {slots}: status {status}")
        case.same_weights(run, f"stage {stage} on {slots}")


def two_hosts(case):
    """Two ranks on each of two hosts: all stages, groups by host, lists of hosts as MPICH and Open MPI write them, and
    a checkpoint that other ranks resume."""
    case.alone()
    trains_equally(case, [2, 2], range(4))
    for groups, stage in (("node", 3), ("node", 1)):
        status = case.train([2, 2], f"groups_{stage}", f"zero.stage={stage}", f"zero.shard_group={groups}")
        case.expect(status == 0 and "on 4 ranks in 2 groups of 2" in case.said, f"groups, stage {stage}: status {status}")
        case.same_weights(f"groups_{stage}", f"groups, stage {stage}")
    for name, lines in LISTS.items():
        status = case.script_on(lines, ["-n", "4"], *MODEL, f"run.dir={case.folder}/{name}")
        hosts = {rank["host"] for rank in json.loads((case.folder / name / "ranks.json").read_text())}
        case.expect(status == 0 and hosts == {"host1", "host2"}, f"{name}: status {status}, on {hosts}")
        case.same_weights(name, f"kozero.sh --hosts, a list of {name}")
    status = case.train([2, 2], "run", "zero.stage=3", "run.steps=3", "checkpoint.every=3")
    case.expect(status == 0, f"a run with a checkpoint: status {status}")
    log = (case.folder / "run" / "log.txt").read_text()
    on_ucx = "ch4:ucx" in subprocess.run(["mpichversion"], capture_output=True, text=True).stdout
    sizes = "UCX_TCP_TX_SEG_SIZE=256k UCX_TCP_RX_SEG_SIZE=256k"
    for line in (rf"mpi_settings .*{sizes}$", rf"note +set for MPI, .*{sizes} ") if on_ucx else ():
        case.expect(re.search(line, log, re.MULTILINE), f"log.txt has no {line}")
    status = case.train([1, 2], "run", "zero.stage=2", "checkpoint.resume=auto")
    case.expect(status == 0 and "resume       after step 3" in case.said, f"it resumes on 1 and 2 ranks: status {status}")
    case.same_weights("run", "resumed on other ranks")


def four_hosts(case):
    """A rank on each of four hosts, whose links have 100 Mbit/s: all stages, and groups of two hosts."""
    case.alone()
    trains_equally(case, [1, 1, 1, 1], range(4))
    status = case.train([1, 1, 1, 1], "groups", "zero.stage=3", "zero.shard_group=2")
    case.expect(status == 0 and "on 4 ranks in 2 groups of 2" in case.said, f"groups: status {status}")
    case.same_weights("groups", "groups of two hosts")


SHARED = "a folder on a file system that all hosts share, under the same path$"


def refusals(case):
    """What differs between hosts is refused before a step."""
    hosts, run = case.hosts, case.folder / "run"
    run.mkdir()
    hosts.mount(2, run)
    ended = case.train([1, 1], "run", "checkpoint.resume=auto")
    case.refused(4, rf'run\.dir = ".*/run": rank 1 on host host2 does not see the folder of rank 0 on host host1; give {SHARED}', ended)
    hosts.unmount(2, run)
    (case.folder / "runs").mkdir()
    hosts.mount(2, case.folder / "runs")
    ended = case.train([1, 1], "runs/run")
    case.refused(3, rf'data\.cache = ".*": rank 1 on host host2 does not read what rank 0 does: .*; give {SHARED}', ended, "runs/run")
    hosts.unmount(2, case.folder / "runs")

    other = case.folder / "other"
    shutil.copy(case.arguments.kozero, other)
    with open(other, "ab") as file:
        file.write(b"0")
    hosts.mount(2, case.arguments.kozero, other)
    ended = case.train([1, 1], "other_program")
    case.refused(2, r"ranks 0 and 1 \(hosts host1 and host2\) run different programs .*: start the same build on all nodes", ended, "other_program")
    hosts.unmount(2, case.arguments.kozero)
    deck = case.folder / "deck.toml"
    deck.write_text(pathlib.Path(case.arguments.deck).read_text() + "\n[comm]\ntimeout_s = 7\n")
    hosts.mount(2, case.arguments.deck, deck)
    ended = case.train([1, 1], "other_deck")
    case.refused(2, r"ranks 0 and 1 \(hosts host1 and host2\) disagree on comm\.timeout_s: .*: give every rank the same deck", ended, "other_deck")
    hosts.unmount(2, case.arguments.deck)

    limited = ["bash", "-c", 'ulimit -v 900000; exec "$@"', "bash"]
    ended = case.train([1, 1], "large", *LARGE, before={1: limited})
    case.refused(2, r"the run needs .* are available on host host2 \(ulimit -v\); ", ended, "large")


def starts(case):
    """Hosts that do not start, or do not reach each other."""
    hosts, list_of_hosts = case.hosts, "10.77.0.1\n10.77.0.2\n"
    begin = "kozero: "
    pathlib.Path(f"{hosts.folder}/lost-{address(2)}").touch()
    ended = case.script_on(list_of_hosts, ["-n", "2"])
    case.refused(5, r"host 10\.77\.0\.2 does not answer ssh \(.*\); correct its name or take it out of the list", ended, begin=begin)
    hosts.do("return", 2)
    libraries = subprocess.run(["ldd", case.arguments.kozero], check=True, stdout=subprocess.PIPE).stdout.decode()
    library = os.path.realpath(re.search(r"libmpich\.so\S* => (\S+)", libraries).group(1))
    hosts.mount(2, library, "/dev/null")
    ended = case.script_on(list_of_hosts, ["-n", "2"])
    case.refused(5, r"host 10\.77\.0\.2 cannot start .*kozero \(.*libmpich.*\); all hosts need this build", ended, begin=begin)
    hosts.unmount(2, library)

    (case.folder / "list").write_text("10.77.0.1 slots=1\n")
    ended = subprocess.run([*shlex.split(case.arguments.mpiexec), "-f", str(case.folder / "list"), "-n", "1", "true"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=case.script.environment())
    case.said = ended.stdout.decode()
    case.expect(ended.returncode != 0 and "token slots not supported at this time" in case.said, "mpiexec -f reads slots=N")

    case.launch([1, 1], ["env", "-u", "PMI_FD", *case.command("alone")])
    ended = case.wait()[0]
    case.refused(2, r"PMI_SIZE = 2, but MPI sees this process alone: .*; use that MPI's mpiexec", ended, "alone", lines=2)
    hosts.on(1, f"ip route add unreachable {address(2)}/32")
    ended = case.script_on(list_of_hosts, ["-n", "2"])
    case.refused(5, r"the run is lost: .*; it has saved no checkpoint, so the same command starts it over", ended, begin=begin)
    case.expect(f"dest_addr={address(2)}" in case.said, "MPI names the address that it does not reach")
    hosts.on(1, f"ip route del unreachable {address(2)}/32")
    hosts.on(1, f"ip neigh replace {address(2)} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")  # a silent firewall
    ended = case.train([1, 1], "run", "comm.timeout_s=3")
    case.refused(5, r"rank \d waited 3\.\d s in MPI_Init_thread for another rank: it did not start .*UCX_NET_DEVICES", ended, lines=2)


def links(case):
    """A link is cut for less and for longer than comm.timeout_s; a host is lost."""
    case.alone("alone_40", "run.steps=40")
    case.launch([1, 1], case.command("short", *SLOW, "run.steps=40", "comm.timeout_s=10"))
    case.until_step("short", 3)
    case.hosts.do("cut", 2)
    time.sleep(2)
    case.hosts.do("return", 2)
    status, _ = case.wait()
    case.expect(status == 0 and case.steps("short") == 40, f"cut for 2 s: status {status}")
    case.same_weights("short", "cut for 2 s", "alone_40")
    for what in ("cut", "lose"):
        case.launch([1, 1], case.command(what, *SLOW, "run.steps=4000", "comm.timeout_s=4"))
        case.until_step(what, 3)
        case.hosts.do(what, 2)
        status, seconds = case.wait()
        named = re.findall(r"^\[rank \d\] error: .*", case.said, re.M)
        lost = r"rank 0 waited 4\.\d s in [a-z_]+ for rank 1 on host2 \(process \d+\).*: it is lost, or comm.timeout_s is too short$"
        case.expect(status == 5 and len(named) == 1 and re.search(lost, named[0]) and seconds < 15,
                    f"{what}: status {status} after {seconds:.0f} s, {named}")
        left = "" if what == "lose" else left_on(case, 2)
        case.expect(not left, f"{what}: left on host 2: {left}")
        case.hosts.do("return", 2)


RANKS = "-x 'kozero.*'"  # for pgrep and pkill


def left_on(case, host):
    """The ranks that still run on a host after 10 s. Nothing there reaps a process that has ended."""
    end = time.monotonic() + 10
    while (left := case.hosts.on(host, f"pgrep -r D,R,S {RANKS}", check=False)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def memory(case):
    """A rank gets no more memory from its third step on: the steps need none, what follows them may fail in one line. A
    rank is killed, as the kernel does it."""
    exhausted_on_host2 = r"\[rank 1\] error: (the checkpoint of step 40: )?memory is exhausted on this node .*, host host2: use fewer ranks per host, or raise"
    case.alone("alone_40", "run.steps=40")
    case.launch([1, 1], case.command("run", *SLOW, "zero.stage=3", "run.steps=40", "comm.timeout_s=8"))
    case.until_step("run", 3)
    limit = f"for rank in $(pgrep {RANKS}); do prlimit --pid $rank --as=1000000; done"  # bytes; it has more already
    case.hosts.on(2, limit)
    status, _ = case.wait()
    case.expect(case.steps("run") == 40, f"no more memory: {case.steps('run')} steps, status {status}")
    if status == 0:
        case.same_weights("run", "no more memory", "alone_40")
    else:
        lines = re.findall(r"^\[rank \d\] error: .*", case.said, re.M)
        # MPI's messages need memory too; without it they stall.
        lost = r"\[rank \d\] error: rank \d waited \d+\.\d s in .*: it is lost, or comm.timeout_s is too short"
        case.expect(status in (1, 5) and len(lines) == 1 and re.search(exhausted_on_host2 if status == 1 else lost, lines[0]),
                    f"no more memory: status {status}, {lines}")
    # The limit of a data segment is none of those that the plan asks for: the rank's arrays do not fit.
    limited = ["bash", "-c", 'ulimit -d 300000; exec "$@"', "bash"]
    status = case.train([1, 1], "large", *LARGE, "comm.backend=mpi", before={1: limited})
    case.refused(1, r"out of memory on host host2: \d+ bytes for \w+ \(.*\) after \d+ bytes; use fewer ranks per host", status, "large")
    case.launch_script("10.77.0.1\n10.77.0.2\n", ["-n", "2"], *SLOW, "run.steps=4000", f"run.dir={case.folder}/killed")
    case.until_step("killed", 3)
    case.hosts.on(2, f"pkill -KILL {RANKS}")
    status, _ = case.wait()
    lines = re.findall(r"^kozero: .*", case.said, re.M)
    lost = (r"the run is lost: (rank \d on .* ended without a word: killed \(as when memory is exhausted\), .*|"
            r"the run ended with status 5 on 2 ranks); (the same command continues it|it has saved no checkpoint)")
    case.expect(status == 5 and len(lines) == 1 and re.search(lost, lines[0]), f"killed: status {status}, {lines}")


def clocks(case):
    """The clock of one host is an hour ahead: first another rank's, then rank 0's, whose run goes on without it."""
    ahead = ["env", f"LD_PRELOAD={case.arguments.clock}", "KOZERO_CLOCK_AHEAD_S=3600"]
    case.alone()
    recorded = ["log.timeline=all", "log.timeline_from=2", "log.timeline_steps=2"]
    status = case.train([1, 1], "run_1", "checkpoint.every=2", *recorded, before={1: ahead})
    case.expect(status == 0, f"rank 1 ahead: status {status}")
    case.same_weights("run_1", "rank 1 ahead")
    case.expect(case.steps("run_1") == 6, "rank 1 ahead: other steps")
    begins = [first_event(case.folder / f"run_1/timeline/step_000000002/rank_{rank}.json") for rank in (0, 1)]
    case.expect(abs(begins[0] - begins[1]) < 1e6, f"the timelines begin {begins} us after the barrier")
    status = case.train([1, 1], "run", "run.steps=4", "checkpoint.every=2", before={0: ahead})
    case.expect(status == 0, f"rank 0 ahead: status {status}")
    status = case.train([1, 1], "run", "checkpoint.resume=auto")
    case.expect(status == 0 and "resume       after step 4" in case.said, f"its run goes on: status {status}")
    case.same_weights("run", "rank 0 ahead, then not")
    state = json.loads((case.folder / "run/status.json").read_text())
    case.expect(state["state"] == "finished" and state["start"] <= state["end"], f"status.json: {state}")


def first_event(path):
    return min(event["ts"] for event in json.loads(path.read_text())["traceEvents"] if "ts" in event)


CASES = {
    "two_hosts": (two_hosts, 2, 0),
    "four_hosts": (four_hosts, 4, 100),
    "refusals": (refusals, 2, 0),
    "starts": (starts, 2, 0),
    "links": (links, 2, 0),
    "memory": (memory, 2, 0),
    "clocks": (clocks, 2, 0),
}

parser = argparse.ArgumentParser()
parser.add_argument("case", choices=CASES)
for name in ("kozero", "mpiexec", "deck", "clock"):
    parser.add_argument(name)
given = parser.parse_args()
function, number, rate = CASES[given.case]
status = status_on_hosts(number, rate)
if status is None:
    with tempfile.TemporaryDirectory() as scratch:
        case = Case(Script(pathlib.Path(scratch), given), given)
        try:
            function(case)
        finally:
            case.end()
        status = 1 if case.failures else 0
sys.exit(status)
