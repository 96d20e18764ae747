# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""fault_study.py CASE KOZERO MPIEXEC DECK [--count N] [--seed S] [--report FILE]: real faults in running jobs.

A trial starts a job of two ranks that resumes from a checkpoint of step 2 and ends at step 8, disturbs it in a chosen
phase, waits for its end and then runs the same command until the training is done. CASE:
  kills         SIGKILL or SIGSTOP of a rank, of all ranks or of mpiexec, over phases, back ends and ZeRO stages
  signals       SIGTERM, SIGINT, SIGUSR1 or SIGHUP at random moments to a rank, to a job of one process, or to mpiexec
  moments       1 or 20 stop signals at random moments of steps: models of several sizes, 1 and 2 ranks, both back ends,
                in f32 and bf16. Each must save and end with status 75
  double_starts the same command twice on one folder
Nothing is lost: the run resumes from a checkpoint no older than the newest one reported complete, and the hashes of the
final datasets are those of an undisturbed run. Every failing run prints at least one line with "[rank", in its output,
in log.txt or, if all its ranks were killed, at the next start. No job lasts longer than comm.timeout_s and a margin,
and no process is left. Exit status 0: all as expected.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

from job import HANGS, RANKS, Expectations, Job, complete_steps, datasets, train_command, write_text

STEPS = 8
TIMEOUT_S = 3.0   # comm.timeout_s of the trials
MARGIN_S = 60.0   # added to it, since a machine under load starts and stops processes slowly
SETTINGS = [f"run.steps={STEPS}", "checkpoint.every=2", "checkpoint.keep=0", "log.every=1", "train.eval_every=2", "train.eval_batches=4"]
BACKENDS = ("shm", "mpi")
STAGES = (0, 1, 2, 3)


class Study(Expectations):
    def __init__(self, options, folder):
        super().__init__()
        self.options, self.folder, self.rows = options, folder, []
        self.chance = random.Random(options.seed)
        write_text(folder)
        status, said = self.finish(folder / "whole", "checkpoint.every=1")
        self.expect(status == 0, f"the run that nothing happens to ends with status {status}", said)
        self.hashes = {step: datasets(folder / "whole", step) for step in range(1, STEPS + 1)}
        begun = folder / "begun"
        shutil.copytree(folder / "whole", begun)
        for step in self.hashes.keys() - {2}:
            shutil.rmtree(begun / f"step_{step:09}")
        (begun / "weights.h5").unlink()

    def command(self, run, *overrides):
        return train_command(self.options.kozero, self.options.deck, self.folder, run, *SETTINGS, f"comm.timeout_s={TIMEOUT_S}",
                             *overrides)

    def start(self, run, *overrides, ranks=RANKS, said="said"):
        return Job(self.options.mpiexec, ranks, self.command(run, *overrides), self.folder / said)

    def finish(self, run, *overrides):
        job = self.start(run, *overrides, said="said_later")
        status, _ = job.wait(TIMEOUT_S + MARGIN_S)
        return status, job.said()

    def finish_by(self, line):
        job = Job("", 0, ["sh", "-c", line], self.folder / "said_later")
        status, _ = job.wait(TIMEOUT_S + MARGIN_S)
        return status, job.said()

    def fresh(self):
        run = self.folder / "run"
        for old in self.folder.glob("run*"):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(self.folder / "begun", run)
        return run

    def goes_on(self, run, said_before, name, *overrides, line=None):
        """Runs the same command, or a shell's command line, until the training ends. Returns the step from which it resumed
        and its output. Checks that the final state is the undisturbed run's."""
        announced = max([2, *complete_steps(said_before)])
        status, said = self.finish(run, *overrides) if line is None else self.finish_by(line)
        self.expect(status == 0, f"{name}: the run after it ends with status {status}", said)
        step = int((re.findall(r"^resume       after step (\d+),", said, re.M) or [0])[-1])
        self.expect(step >= announced, f"{name}: went on from step {step}, and {announced} was said to be complete", said)
        self.expect(re.search(r"^(skipped|set aside) ", said, re.M) is None, f"{name}: a checkpoint under its own name is broken", said)
        for done in sorted({step, STEPS}):
            same = (run / f"step_{done:09}").exists() and datasets(run, done) == self.hashes[done]
            self.expect(same, f"{name}: step {done} is not what an undisturbed run has", said)
        self.expect(len((run / "metrics.jsonl").read_text().splitlines()) == STEPS, f"{name}: metrics.jsonl has not {STEPS} lines", said)
        return step, said

    def says_a_line(self, run, said, later, killed, name):
        """Checks for a line of a rank. Killed ranks cannot print one; then the next start may report them."""
        log = (run / "log.txt").read_text(errors="replace") if (run / "log.txt").exists() else ""
        told = "[rank" in said + log or (killed and re.search(r"^note .*the run before", later, re.M) is not None)
        self.expect(told, f"{name}: it failed, and no line says which rank", said + "\n--- the next start:\n" + later)

    def blame(self, run, name):
        """Whether the failure notes name the killed rank. They must not name another rank."""
        named = {json.loads(note.read_text())["rank"] for note in run.glob("failure_rank_*.json") if note.stat().st_size > 0}
        self.expect(named <= {self.killed}, f"{name}: rank {self.killed} was killed, and the notes name {named}")
        return "exact" if named else "unknown"

    def reached(self, job, run, phase):
        """Waits until the job is in that phase. Returns whether it reached the phase."""
        began = lambda: re.search(r"^step [3-9]/", job.said(), re.M) is not None
        partial = lambda: any(run.glob("step_*.partial"))
        reached = {
            "start-up": lambda: len(job.ranks()) > 0,
            "training": began,
            "saving": lambda: began() and partial(),
            "evaluation": lambda: re.search(r"^step [4-9]/", job.said(), re.M) is not None,
            "end": lambda: re.search(r"^memory       planned", job.said(), re.M) is not None,
        }[phase]
        job.until(reached, MARGIN_S)
        most = {"start-up": 0.4, "training": 0.05, "saving": 0.003, "evaluation": 0.02, "end": 0.03}[phase]
        time.sleep(self.chance.uniform(0.0, most))
        return job.running()

    def row(self, **values):
        self.rows.append(values)

    def report(self, title):
        if self.options.report:
            with open(self.options.report, "a") as file:
                for row in self.rows:
                    file.write(json.dumps({"case": title, **row}) + "\n")
        took = [row["seconds"] for row in self.rows if row.get("seconds") is not None]
        statuses = collections.Counter(row["status"] for row in self.rows)
        print(f"{title}: {len(self.rows)} trials, seed {self.options.seed}: statuses {dict(statuses)}, "
              f"at most {max(took, default=0):.1f} s until the end, {self.failures} not as expected")
        blames = collections.Counter(row["blame"] for row in self.rows if row.get("blame"))
        if blames:
            print(f"{title}: the rank that was killed alone is named: {dict(blames)}")


# The disturbance, its target, and whether the job must fail, continue, or may do either (it may have ended before).
def send(signal_number, processes):
    sent = 0
    for process in processes:
        try:
            os.kill(process, signal_number)
            sent += 1
        except ProcessLookupError:
            pass
    return sent


ACTIONS = ("kill one", "kill all", "kill mpiexec", "stop one", "stop all, continue", "stop mpiexec, continue")


def state_of(run):
    status = run / "status.json"
    return json.loads(status.read_text())["state"] if status.exists() else "none"


def whom_is_launcher(action):
    return "mpiexec" in action


def disturb(study, job, action):
    """Disturbs the job. Returns whether the job must fail."""
    ranks = job.ranks()
    chosen = [study.chance.choice(sorted(ranks.values()))] if ranks else []
    launcher = [job.process.pid]
    if action == "kill one":
        study.killed = next((rank for rank, process in ranks.items() if [process] == chosen), None)
        return send(signal.SIGKILL, chosen) > 0
    if action == "kill all":
        return send(signal.SIGKILL, ranks.values()) > 0
    if action == "kill mpiexec":
        return send(signal.SIGKILL, launcher) > 0
    if action == "stop one":
        return send(signal.SIGSTOP, chosen) > 0
    stopped = list(ranks.values()) if action == "stop all, continue" else launcher
    send(signal.SIGSTOP, stopped)
    time.sleep(2.0 * TIMEOUT_S)
    send(signal.SIGCONT, stopped)
    return False


def kills(study, options):
    phases = ("start-up", "training", "saving", "evaluation", "end")
    cases = list(itertools.product(ACTIONS, phases, BACKENDS, STAGES))
    study.chance.shuffle(cases)
    for action, phase, backend, stage in itertools.islice(itertools.cycle(cases), options.count):
        name = f"{action} in {phase}, {backend}, stage {stage}"
        overrides = (f"comm.backend={backend}", f"zero.stage={stage}")
        run = study.fresh()
        job = study.start(run, *overrides)
        alive = study.reached(job, run, phase)
        fails = disturb(study, job, action) if alive else False
        status, seconds = job.wait(TIMEOUT_S + MARGIN_S)
        said = job.said()
        study.expect(status != HANGS, f"{name}: it never ended", said)
        study.expect(job.orphans_s < TIMEOUT_S + MARGIN_S, f"{name}: processes live on", said)
        # MPICH's launcher, if stopped until its ranks have ended, dies of SIGPIPE and prints nothing of their output.
        done = status == 0 or (whom_is_launcher(action) and status == 128 + signal.SIGPIPE and state_of(run) == "finished")
        study.expect(fails or done, f"{name}: status {status}, wanted 0", said)
        if action == "stop one" and fails and status != 0:
            # 9: the status of the stopped rank, which the launcher kills, if it is the lower rank.
            study.expect(status in (5, 9), f"{name}: status {status}, wanted 5", said)
        blame = study.blame(run, name) if action == "kill one" and fails and phase != "start-up" else None
        step, later = study.goes_on(run, said, name, *overrides)
        # A rank killed before the run began, or after the run's last line, prints nothing.
        killed = action.startswith("kill")
        unstarted = killed and (re.search("^resume ", said, re.M) is None or "output in" in said)
        if fails and status != 0 and not unstarted:
            study.says_a_line(run, said, later, killed, name)
        study.row(action=action, phase=phase, backend=backend, stage=stage, status=status, blame=blame, seconds=round(seconds, 2),
                  orphans_s=round(job.orphans_s, 2), resumed=step)
    study.report("kills")


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
WHOM = ("a rank", "all ranks", "the process", "mpiexec")


def continue_command(said):
    """The command that a stopped run prints, or None. A launcher mixes its lines with others."""
    found = re.findall(r"\[rank \d+\] stopped.*; to (?:go on|run it again): (.*)$", said, re.M)
    return found[-1] if found else None


def signals(study, options):
    cases = list(itertools.product(SIGNALS, WHOM))
    study.chance.shuffle(cases)
    for number, whom in itertools.islice(itertools.cycle(cases), options.count):
        name = f"{number.name} to {whom}"
        run = study.fresh()
        # Evaluations fill the time, so that most signals arrive while the job computes.
        job = study.start(run, "train.eval_every=1", "train.eval_batches=100", ranks=0 if whom == "the process" else RANKS)
        job.until(lambda: len(job.ranks()) > 0, MARGIN_S)
        job.until(lambda: "precision" in job.said() or "step " in job.said(), MARGIN_S)
        time.sleep(study.chance.uniform(0.0, 0.3))
        ranks = job.ranks()
        target = {"a rank": [study.chance.choice(sorted(ranks.values()))] if ranks else [], "all ranks": list(ranks.values()),
                  "the process": [job.process.pid], "mpiexec": [job.process.pid]}[whom]
        send(number, target)
        status, seconds = job.wait(TIMEOUT_S + MARGIN_S)
        said = job.said()
        study.expect(status != HANGS, f"{name}: it never ended", said)
        if whom != "mpiexec":
            study.expect(status in (0, 75), f"{name}: status {status}, wanted 75, or 0 where the training was over", said)
        state = state_of(run)
        # A signal while the last line is printed does not stop the run, which is complete.
        complete = state == "finished" and "output in" in said
        study.expect(status != 75 or state == "preempted" or complete, f"{name}: status 75, and status.json says {state}", said)
        line = continue_command(said) if status == 75 else None
        study.expect(status != 75 or line is not None, f"{name}: no command to continue with", said)
        done = [int(step) for step in re.findall(r"\[rank \d+\] stopped after step (\d+) of", said)]
        step, _ = study.goes_on(run, said, name, line=line)
        study.expect(not done or step == done[-1], f"{name}: went on from step {step}, stopped after step {done}", said)
        study.row(signal=number.name, whom=whom, status=status, state=state, seconds=round(seconds, 2), resumed=step)
    study.report("signals")


def moments(study, options):
    cases = list(itertools.product((64, 128, 256), ((0, "auto"), (RANKS, "mpi"), (RANKS, "shm")), ("f32", "bf16"), (1, 20)))
    study.chance.shuffle(cases)
    for dim, (ranks, backend), precision, count in itertools.islice(itertools.cycle(cases), options.count):
        number = study.chance.choice((signal.SIGTERM, signal.SIGUSR1))
        name = f"{count} {number.name}, dim {dim}, {max(ranks, 1)} ranks, {backend}, {precision}"
        run = study.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        job = study.start(run, "run.steps=100000", "checkpoint.every=100000", "train.eval_every=0", "model.layers=2", f"model.dim={dim}",
                          "model.heads=4", "model.seq=64", f"comm.backend={backend}", f"train.precision={precision}", "log.every=1",
                          ranks=ranks)
        job.until(lambda: re.search(r"^step [2-9]", job.said(), re.M) is not None, MARGIN_S)
        time.sleep(study.chance.uniform(0.0, 0.1))
        target = [study.chance.choice(sorted(job.ranks().values()))]
        for _ in range(count):
            send(number, target)
            time.sleep(study.chance.uniform(0.0, 0.0002))
        status, seconds = job.wait(TIMEOUT_S + MARGIN_S)
        said = job.said()
        study.expect(status == 75, f"{name}: status {status}, wanted 75", said[-2000:])
        done = re.findall(rf"^\[rank 0\] stopped after step (\d+) of 100000: {number.name} came; its checkpoint is", said, re.M)
        saved = len(done) == 1 and len(datasets(run, int(done[0]))) > 0
        study.expect(saved and state_of(run) == "preempted", f"{name}: nothing saved, state {state_of(run)}", said[-2000:])
        study.row(signal=number.name, count=count, dim=dim, ranks=max(ranks, 1), backend=backend, precision=precision, status=status,
                  seconds=round(seconds, 2))
    study.report("moments")


def double_starts(study, options):
    for _ in range(options.count):
        run = study.fresh()
        apart = study.chance.choice((0.0, study.chance.uniform(0.0, 0.6)))
        name = f"two starts {apart:.2f} s apart"
        first = study.start(run, said="said")
        time.sleep(apart)
        second = study.start(run, said="said_second")
        ends = [first.wait(TIMEOUT_S + MARGIN_S), second.wait(TIMEOUT_S + MARGIN_S)]
        both = first.said() + second.said()
        statuses = sorted(status for status, _ in ends)
        refused = [job.said() for job, (status, _) in zip((first, second), ends) if status == 2]
        one_after_the_other = statuses == [0, 0] and both.count("resume       after step") == 2
        study.expect(statuses == [0, 2] or one_after_the_other, f"{name}: statuses {statuses}, wanted 0 and 2", both)
        for said in refused:
            study.expect(re.search(r"\[rank 0\] error: .*(process|pid)", said) is not None, f"{name}: the holder is not named", said)
        study.goes_on(run, both, name)
        study.row(status=str(statuses), seconds=round(max(seconds for _, seconds in ends), 2), apart=round(apart, 2))
    study.report("double starts")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("kills", "signals", "moments", "double_starts"))
    for name in ("kozero", "mpiexec", "deck"):
        parser.add_argument(name)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", help="a JSON line a trial is appended to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(options, pathlib.Path(folder))
        globals()[options.case](study, options)
    sys.exit(study.failures > 0)


main()
