# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_run_control.py CASE KOZERO MPIEXEC PRELOAD DECK [--times N]: runs that are stopped, killed, started twice or
lose their disk. Each function below whose docstring begins "case:" is a case; N repeats the random ones. Exit status 0:
all as expected.
"""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess

from run_case import FOREVER, run_one_case


def lock(case):
    """case: a second job is refused and told the holder; a crash leaves no lock; --steal-lock works; without locks, a
    note."""
    auto = ["checkpoint.resume=auto", "checkpoint.every=5", "checkpoint.keep=2", FOREVER]
    job = case.start(*auto)
    case.wait_for_steps(job)
    before = sorted(path.name for path in case.run.iterdir())
    pid, host = job.ranks()[0], os.uname().nodename
    said = case.expect_end(case.start(*auto), 2, r'^\[rank 0\] error: run.dir = "run": another run is at work there: '
                           rf"process {pid} on host {host}, since 20..-.*Z; .*--steal-lock", "a second job")
    case.expect(len(re.findall(r"^\[rank", said, re.M)) == 1, "a second job: one line", said)
    after = {path.name for path in case.run.iterdir()}
    case.expect(all(name.startswith("step_") for name in set(before) - after), "the second job removed files")
    job.kill()
    job = case.start(*auto, "run.steps=100000")
    case.wait_for(lambda: "from run/step_" in job.said() or "from the beginning" in job.said(), job, "a restart after a crash")
    # A holder that is alive notices the theft, and writes nothing more.
    thief = case.start(*auto, "--steal-lock", "run.steps=200000")
    case.expect_end(job, 4, r"^\[rank 0\] error: (the checkpoint of step \d+: )?run: its lock was taken by process \d+ on host", "whose lock was taken")
    case.wait_for(lambda: "\nresume " in thief.said(), thief, "whoever took the lock")
    case.expect_said(r"^warning      run: its lock was taken from process \d+ on host .* \(--steal-lock\)", thief.said(),
                     "--steal-lock")
    case.expect(case.status()["state"] == "running", "the run whose lock was taken wrote status.json")
    case.wait_for_new_steps(thief)
    os.kill(thief.ranks()[0], signal.SIGTERM)
    case.expect_end(thief, 75, "stopped after step", "whoever took the lock")
    case.expect(not (case.run / "lock").exists(), "the lock stays after the run's end")
    case.clear()
    case.expect_end(case.start("run.steps=2", LD_PRELOAD=case.options.preload, KOZERO_NO_LOCKS="1"), 0,
                    r"^warning      run: its file system has no locks \(No locks available\): nothing keeps", "no locks")
    case.expect_end(case.start("run.steps=2", "--steal-lock"), 2, r"--steal-lock: no folder is continued", "nothing to take")


def double_start(case):
    """case: the same resume=auto command twice at once: one trains, the other is refused, nothing is damaged."""
    auto = ["checkpoint.resume=auto", "checkpoint.every=3", "checkpoint.keep=2", FOREVER]
    for i in range(case.options.times or 3):
        if i % 2 == 0:
            case.clear()  # without the run's folder
        jobs = [case.start(*auto, ranks=1 + i % 2) for _ in range(2)]
        case.wait_for(lambda: any(job.process.poll() is not None for job in jobs), type("Any", (), {
            "process": type("P", (), {"poll": staticmethod(lambda: None)}), "said": lambda self: ""})(), "a refusal")
        loser = next((job for job in jobs if job.process.poll() is not None), jobs[0])
        winner = jobs[1] if loser is jobs[0] else jobs[0]
        case.expect_end(loser, 2, r"^\[rank 0\] error: run.dir = .*another run is at work there", f"double start {i}: the second")
        case.wait_for_new_steps(winner)
        os.kill(winner.ranks()[0], signal.SIGTERM)
        case.expect_end(winner, 75, "its checkpoint is run/step_", f"double start {i}: the first")
        steps = case.steps()
        case.expect(steps == list(range(1, len(steps) + 1)), f"double start {i}: metrics.jsonl has steps {steps}")
        case.expect(not list(case.folder.glob("run-[0-9]*")), f"double start {i}: a second folder")
        verified = subprocess.run([case.options.kozero, "inspect", case.run, "--verify"], capture_output=True, text=True,
                                  check=False)
        case.expect(verified.returncode == 0, f"double start {i}: a broken checkpoint", verified.stderr)


def lost_rank(case):
    """case: after kill -9 of one rank the next start reports what is known about the rank."""
    for backend in ("shm", "mpi"):
        case.clear()
        job = case.start(FOREVER, "checkpoint.every=5", "checkpoint.keep=2", "comm.timeout_s=5", f"comm.backend={backend}")
        case.wait_for_steps(job, 8)
        table = case.run / "ranks.json"
        pids = [rank["pid"] for rank in json.loads(table.read_text())] if table.exists() else []
        case.expect(pids == job.ranks(), f"ranks.json has {pids}, the ranks are {job.ranks()}")
        os.kill(job.ranks()[1], signal.SIGKILL)
        status, said = job.end()
        case.expect(status not in (0, "it hangs"), f"kill -9: status {status}", said)
        last = case.steps()[-1]
        case.expect_end(case.start("run.steps=" + str(last + 3), "checkpoint.resume=auto"), 0,
                        rf"^note         the run before ended at step \d+: (rank 1 on host {os.uname().nodename}: its process \d+ ended "
                        rf"without a word|ranks 0-1 on host {os.uname().nodename} were killed .*is not known)",
                        "the next start")
        case.expect(not list(case.run.glob("failure_rank_*")), "words of failed ranks stay")
        case.expect(case.status()["state"] == "finished", f"{case.status()}")


def lost_folder(case):
    """case: a run whose folder is deleted, or moved, ends with status 4."""
    for moved in (True, False):
        case.clear()
        job = case.start(FOREVER)
        case.wait_for_steps(job)
        case.run.rename(case.folder / f"moved{moved}")
        if not moved:
            shutil.rmtree(case.folder / f"moved{moved}")
        said = case.expect_end(job, 4, r"^\[rank 0\] error: run: this run's folder is not there any more: it was deleted or "
                               r"moved", "a lost folder")
        case.expect("output in" not in said, "a lost folder: output nowhere", said)
        case.expect(not case.run.exists(), "a lost folder came back")


def broken_checkpoints(case):
    """case: if all checkpoints of a finished run are broken, only log.txt changes; status 3."""
    case.expect_end(case.start("run.steps=6", "checkpoint.every=3"), 0, "output in", "a run")
    for state in case.run.glob("step_*/state.h5"):
        state.write_bytes(state.read_bytes()[:-100])
    before = {path: path.read_bytes() for path in case.run.rglob("*") if path.is_file()}
    case.expect_end(case.start("run.steps=9", "checkpoint.every=3", "checkpoint.resume=auto"), 3,
                    r'^\[rank 0\] error: checkpoint.resume = "auto": none of the 2 checkpoints in run is whole, nothing was '
                    r"changed: .*run/step_000000006/state.h5: ", "broken checkpoints")
    after = {path: path.read_bytes() for path in case.run.rglob("*") if path.is_file()}
    changed = [str(path) for path in {**before, **after} if before.get(path) != after.get(path)]
    case.expect({path.rsplit("/", 1)[-1] for path in changed} == {"log.txt"}, f"files changed: {changed}")
    case.expect_said(r'^\[rank 0\] error: checkpoint.resume = "auto": none of the 2', (case.run / "log.txt").read_text(), "log.txt")
    case.expect(case.status()["state"] == "finished", f"{case.status()}")


def full_metrics(case):
    """case: metrics that cannot be written: one warning per outage, or the run ends after a save; never half a line."""
    flag = case.folder / "full"
    for path in ("metrics.jsonl", "log.txt"):
        case.clear()
        flag.unlink(missing_ok=True)
        job = case.start("checkpoint.every=100000", "checkpoint.on_error=continue", "log.every=1", FOREVER,
                         LD_PRELOAD=case.options.preload, KOZERO_FULL_WHILE=str(flag), KOZERO_FULL_PATH=path)
        case.wait_for_steps(job)
        flag.touch()
        case.wait_for(lambda: "No space left on device" in job.said(), job, "a warning")
        seen = job.said().count("\n")
        case.wait_for(lambda: job.said().count("\n") > seen + 5, job, "steps on a full disk")
        flag.unlink()
        count = len(case.steps())
        case.wait_for_steps(job, count + 3)
        os.kill(job.ranks()[0], signal.SIGTERM)
        said = case.expect_end(job, 75, rf"^warning      run/{path}: cannot write: No space left on device",
                               f"{path} on a full disk")
        case.expect(said.count("No space left") == 1, f"{path}: one warning an outage", said)
        if path == "metrics.jsonl":
            case.expect_said(r"^note         metrics.jsonl is written again; it lacks \d+ steps", said, "after the outage")
        case.steps()  # checks that every line is complete
    case.clear()
    job = case.start("checkpoint.every=100000", FOREVER, LD_PRELOAD=case.options.preload, KOZERO_FULL_WHILE=str(flag),
                     KOZERO_FULL_PATH="metrics.jsonl")
    case.wait_for_steps(job)
    flag.touch()
    said = case.expect_end(job, 4, r"^\[rank 0\] error: run/metrics.jsonl: cannot write: No space left on device \(step \d+\); "
                           r"its checkpoint is run/step_\d+$", "on_error = stop")
    case.expect(said.count("its checkpoint is run/" + case.checkpoints()[-1]) == 1, "on_error = stop: its checkpoint", said)
    case.expect(len(case.checkpoints()) == 1, f"on_error = stop: checkpoints {case.checkpoints()}")
    case.expect(case.steps() == list(range(1, len(case.steps()) + 1)), "on_error = stop: metrics")
    case.expect(case.status()["state"] == "failed" and case.status()["exit_status"] == 4, f"{case.status()}")
    # Without checkpoints the run saves its weights first.
    case.clear()
    flag.unlink()
    job = case.start(FOREVER, LD_PRELOAD=case.options.preload, KOZERO_FULL_WHILE=str(flag), KOZERO_FULL_PATH="metrics.jsonl")
    case.wait_for_steps(job)
    flag.touch()
    case.expect_end(job, 4, r"^\[rank 0\] error: run/metrics.jsonl: cannot write: No space left on device \(step \d+\); "
                    r"its weights are in run/weights.h5, but without checkpoint.every not the optimizer's state$",
                    "no checkpoints")
    case.expect((case.run / "weights.h5").exists(), "no checkpoints: no weights")


def begun_anew(case):
    """case: a run that died before its first checkpoint restarts from the beginning in its folder; its old files are
    kept."""
    auto = [FOREVER, "checkpoint.resume=auto", "checkpoint.every=100000"]
    before = {}
    for kept in ("old", "old-2"):
        job = case.start(*auto)
        case.wait_for_new_steps(job) if before else case.wait_for_steps(job)
        job.kill()
        said = job.said()
        if before:
            # A rank that noticed the other's end may have written its last words.
            case.expect_said(r"^note         the run before ended at step \d+: (rank 1|ranks 0-1) on host", said, "the run before")
            case.expect_said(r"^resume       no complete checkpoint in run: from the beginning; the run before is kept as "
                             r"log.txt.old, metrics.jsonl.old, deck.toml.old$", said, "one line")
        for name, text in before.items():
            case.expect((case.run / f"{name}.old").read_bytes() == text, f"{name}.old is not what {name} was")
        case.expect(case.steps()[0] == 1, f"metrics.jsonl begins at {case.steps()[0]}")
        if not before:
            before = {name: (case.run / name).read_bytes() for name in ("log.txt", "metrics.jsonl", "deck.toml")}
    said = case.expect_end(case.start(*auto, "run.steps=2"), 0, "log.txt.old-2, metrics.jsonl.old-2, deck.toml.old-2$", "again")
    case.expect("from the beginning" not in case.expect_end(case.start(*auto, "run.steps=3"), 0, "^resume       after step 2",
                                                            "after a checkpoint"), "after a checkpoint", said)


def slow_disk(case):
    """case: an error during a hanging save is printed to stderr and log.txt; the job ends."""
    job = case.start(FOREVER, "checkpoint.every=3", "comm.timeout_s=2", LD_PRELOAD=case.options.preload,
                     KOZERO_SLOW_FSYNC="step_", KOZERO_SLOW_SECONDS="1000")
    case.wait_for(lambda: any(case.run.glob("step_*")), job, "a save")
    os.kill(job.ranks()[1], signal.SIGSTOP)
    said = case.expect_end(job, 5, r"^\[rank 0\] error: ", "an error while a save hangs")
    case.expect_said(r"^\[rank 0\] error: ", (case.run / "log.txt").read_text(), "log.txt")
    case.expect(case.status()["state"] == "failed", f"{case.status()}", said)


def lone_error(case):
    """case: an error of only one rank is always in stderr and log.txt, and the next start reports it."""
    lost = 0
    for i in range(case.options.times or 5):
        case.clear()
        job = case.start(FOREVER, "comm.timeout_s=0.5", f"comm.backend={('mpi', 'shm')[i % 2]}")
        case.wait_for_steps(job)
        os.kill(job.ranks()[i % 2], signal.SIGSTOP)
        status, said = job.end()
        lost += re.search(r"^\[rank \d\] error: ", said, re.M) is None
        case.expect(status == 5, f"lone error {i}: status {status}", said)
        case.expect_said(r"^\[rank \d\] error: ", (case.run / "log.txt").read_text(), "log.txt")
        words = list(case.run.glob("failure_rank_*.json"))
        case.expect(len(words) >= 1 and case.status()["state"] == "failed", f"lone error {i}: {words}, {case.status()}")
    case.expect(lost == 0, f"the line was lost {lost} times")
    case.expect_end(case.start("run.steps=2", "checkpoint.resume=auto"), 0,
                    r"^note         the run before ended at step \d+: rank \d on host .*: ", "the next start")


def failed_start(case):
    """case: a failed start is recorded in status.json and log.txt; a start refused by the lock does not change them."""
    case.expect_end(case.start("run.steps=4", "run.max_minutes=1e-9", "checkpoint.every=2"), 75, "have passed", "a stopped run")
    case.expect(case.status()["state"] == "preempted", f"{case.status()}")
    holder = open(case.run / "lock", "w")  # the lock of another run
    fcntl.flock(holder, fcntl.LOCK_EX)
    before = {path: path.read_bytes() for path in case.run.rglob("*") if path.is_file() and path.name != "lock"}
    for ranks in (1, 2):
        case.expect_end(case.start("run.steps=4", "checkpoint.resume=auto", ranks=ranks), 2, "another run is at work there",
                        "a start that the lock refuses")
    after = {path: path.read_bytes() for path in case.run.rglob("*") if path.is_file() and path.name != "lock"}
    case.expect(before == after, "a start that the lock refuses changed files")
    holder.close()
    other = ["run.steps=4", "checkpoint.every=2", "checkpoint.resume=auto"]
    case.expect_end(case.start(*other, "train.global_batch=8"), 2, "the global batch is 8 and was 4", "another deck")
    case.expect_failed_start(1, 2, "the global batch is 8 and was 4", "another deck")
    case.expect(not (case.run / "lock").exists(), "a failed start leaves its lock")
    said = case.expect_end(case.start(*other), 0, "output in run:", "the right deck")
    case.expect_said("^note         the run before ended at step 1: .*the global batch is 8 and was 4", said, "its next start")
    case.expect(case.status()["state"] == "finished", f"{case.status()}")
    case.expect_end(case.start(*other), 0, "note         nothing to train: step 4 of 4 is done; give more run.steps", "again")
    case.expect_end(case.start(*other, "train.global_batch=8", ranks=1), 2, "the global batch is 8 and was 4", "on one rank")
    case.expect(case.status()["state"] == "finished", f"a refused start leaves a finished run finished: {case.status()}")
    fresh = case.start(*other, "run.dir=fresh", "model.heads=3")
    case.expect_end(fresh, 2, "model.heads", "a refused deck")
    case.expect(not (case.folder / "fresh").exists(), "a failed first start leaves a folder")


def every_minutes(case):
    """case: checkpoint.every_minutes saves by rank 0's clock, on all ranks after the same step, and changes no bits."""
    keys = ["run.steps=60", "checkpoint.every=100000", "checkpoint.keep=0", "comm.backend=mpi", "comm.latency_us=5000"]
    case.expect_end(case.start(*keys, "run.dir=by_steps"), 0, "output in by_steps:", "a run that saves by steps")
    said = case.expect_end(case.start(*keys, "checkpoint.every_minutes=0.5s"), 0, "output in run:", "a run that saves by time")
    intervals = [float(found) for found in re.findall(r"([\d.]+) s since the last checkpoint", said)]
    case.expect(3 <= len(intervals) <= 20 and min(intervals[:-1]) >= 0.5, f"seconds between saves: {intervals}", said)
    case.expect(len(list(case.run.glob("step_?????????"))) == len(intervals), "a checkpoint is missing", said)
    compared = subprocess.run([case.options.kozero, "inspect", "--diff", "by_steps/weights.h5", "run/weights.h5"], cwd=case.folder,
                              capture_output=True, text=True, check=False)
    case.expect(compared.returncode == 0, "other weights", compared.stdout)
    case.expect_end(case.start("checkpoint.every_minutes=1", "run.dir=refused"), 2,
                    r"checkpoint\.every_minutes = 1.0: accepted is 0 if checkpoint\.every = 0", "without checkpoints")


run_one_case(globals())
