# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_damage.py CASE KOZERO MPIEXEC PRELOAD DECK: runs whose memory or files are damaged, and commands without MPI.
Each function below whose docstring begins "case:" is a case. Exit status 0: all as expected.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

from run_case import FOREVER, run_one_case


def aborted(case):
    """case: a rank that aborts reports the signal, and the next start reports the abort."""
    damaged = {"LD_PRELOAD": case.options.preload, "KOZERO_DAMAGE_AT": "step_000000003"}
    for kind, ranks, whom in (("damage", 1, 0), ("damage", 2, 0), ("damage", 2, 1), ("signal", 1, 0), ("signal", 2, 1)):
        case.clear()
        name = f"{kind} on rank {whom} of {ranks}"
        settings = [FOREVER, "checkpoint.every=3", "comm.timeout_s=20"]
        if kind == "damage":
            job = case.start(*settings, ranks=ranks, KOZERO_DAMAGE_RANK=str(whom), **damaged)
        else:
            job = case.start(*settings, ranks=ranks)
            case.wait_for_steps(job)
            os.kill(job.ranks()[whom], signal.SIGABRT)
        status, said = job.end()
        case.expect(status not in (0, "it hangs"), f"{name}: status {status}", said)
        where = r"ended by SIGABRT \((step \d+, )?[a-z_]+" if kind == "damage" else "ended by SIGABRT "
        case.expect_said(rf"^\[rank {whom}\] error: rank {whom} {where}", said, name)
        case.expect(len(re.findall(r"^\[rank \d\] error: ", said, re.M)) == 1, f"{name}: not one line", said)
        if kind == "damage":
            case.expect("double free" in said, f"{name}: the C library's own words", said)
        now = case.status()
        case.expect(now["state"] == "failed" and f"rank {whom} ended by SIGABRT" in now["why"], f"{name}: {now}", said)
        steps = f"run.steps={max(case.steps(), default=0) + 3}"
        case.expect_end(case.start(steps, "checkpoint.every=3", "checkpoint.resume=auto", ranks=1), 0,
                        rf"^note         the run before ended at step \d+: rank {whom} on host .*: rank {whom} ended by SIGABRT",
                        f"{name}: the next start")


def metrics(case):
    """case: a resume renames a damaged metrics.jsonl and prints that; for an empty one it prints that it was empty."""
    auto = ["checkpoint.every=2", "checkpoint.resume=auto"]
    path = case.run / "metrics.jsonl"
    case.expect_end(case.start("run.steps=4", *auto, ranks=1), 0, "output in", "a run")
    whole = path.read_bytes()
    for content, lines, kept, name in ((bytes(range(256)) * 40, "41 of its 41", [], "metrics.jsonl.old"),
                                       (b"\0" * 4096, "1 of its 1", [], "metrics.jsonl.old-2"),
                                       (whole.replace(b"{", b"#", 1), "1 of its 4", [2, 3, 4], "metrics.jsonl.old-3")):
        path.write_bytes(content)
        newest = int(case.checkpoints()[-1].removeprefix("step_"))
        said = case.expect_end(case.start(f"run.steps={newest + 2}", *auto, ranks=1), 0,
                               rf"^warning      run/metrics.jsonl: {lines} lines are not metrics: it is kept as run/{name}, and "
                               r"the other lines go on here$", name)
        case.expect((case.run / name).exists() and (case.run / name).read_bytes() == content, f"{name} is not what it was", said)
        case.expect(case.steps() == [*kept, newest + 1, newest + 2], f"{name}: {case.steps()}", said)
    newest = int(case.checkpoints()[-1].removeprefix("step_"))
    path.write_bytes(b"")
    newest = int(case.checkpoints()[-1].removeprefix("step_"))
    case.expect_end(case.start(f"run.steps={newest + 2}", *auto, ranks=1), 0,
                    rf"^warning      run/metrics.jsonl was empty: the metrics of steps 1 to {newest} are missing$", "empty")
    # A line cut off by a kill, and later steps, are dropped as usual.
    rows = path.read_bytes()
    path.write_bytes(rows + rows.splitlines()[-1][:30])
    said = case.expect_end(case.start(f"run.steps={newest + 4}", *auto, ranks=1), 0, "output in", "a cut line")
    case.expect("metrics.jsonl.old" not in said and "warning" not in said, "a cut line: a warning", said)


def offload(case):
    """case: a damaged file of offloaded state is named in an error, whether or not the loss shows the damage."""
    for content, ranks, stage in ((b"\xff", 1, 0), (b"\0", 2, 3), (b"\xff", 2, 1)):
        case.clear()
        name = f"{content} on {ranks} ranks, stage {stage}"
        parameters = ["zero.offload_parameters=disk"] if stage == 3 else []
        job = case.start(FOREVER, f"zero.stage={stage}", "zero.offload_optimizer=disk", *parameters, "comm.timeout_s=20", ranks=ranks)
        case.wait_for_steps(job, 5)
        pid = job.ranks()[-1]
        # An update under way writes its part again, so the damage may be gone before the check.
        for _ in range(5):
            os.kill(pid, signal.SIGSTOP)
            files = [path for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if ".kozero-offload-" in os.readlink(path)]
            case.expect(files, f"{name}: no file of state on disk")
            for path in files:
                path.open("r+b").write(content * 4096)
            before = len(case.steps())
            os.kill(pid, signal.SIGCONT)
            end = time.monotonic() + 5
            while job.process.poll() is None and len(case.steps()) < before + 20 and time.monotonic() < end:
                time.sleep(0.02)
            if job.process.poll() is not None or time.monotonic() >= end:
                break
        said = case.expect_end(job, 3, rf"^\[rank \d\] error: .* of rank {ranks - 1} in run: its file on disk \(zero.offload_\*\) was changed or "
                               r"damaged after the run wrote it; resume from", name)
        case.expect("optim.lr" not in said, f"{name}: advice on the learning rate", said)


def losses_of(case):
    return {row["step"]: row["loss"] for row in map(json.loads, (case.run / "metrics.jsonl").read_text().splitlines())}


def offload_saved(case):
    """case: a bit of offloaded state that flips is in no checkpoint: the run that goes on from the newest one has the bits
    of an undisturbed run. --times: number of flips."""
    options = ["zero.stage=3", "checkpoint.every=1", "checkpoint.keep=0", "comm.timeout_s=20"]
    disk = ["zero.offload_optimizer=disk", "zero.offload_parameters=disk"]
    random_numbers = random.Random(7)
    for trial in range(case.options.times or 2):
        case.clear()
        name = f"flip {trial}"
        job = case.start(FOREVER, *options, *disk[:1 + trial % 2])
        case.wait_for_steps(job, 3 + trial % 4)
        flipped = 0
        while job.process.poll() is None and flipped < 50:  # an update under way may write over a flip
            pids = job.ranks()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            files = [path for path in pathlib.Path(f"/proc/{pids[-1]}/fd").iterdir() if ".kozero-offload-" in os.readlink(path)]
            file = random_numbers.choice(sorted(files))
            with file.open("r+b") as state:
                at = random_numbers.randrange(0, 4096)
                state.seek(at)
                byte = state.read(1)[0] ^ (1 << random_numbers.randrange(8))
                state.seek(at)
                state.write(bytes([byte]))
            flipped += 1
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(1)
        case.expect_end(job, 3, r"^\[rank \d\] error: .* was changed or damaged after the run wrote it; resume from the newest checkpoint",
                        name)
        newest = int(case.checkpoints()[-1].removeprefix("step_"))
        steps = f"run.steps={newest + 3}"
        case.expect_end(case.start(steps, *options, "checkpoint.resume=auto", ranks=1), 0, "output in", f"{name}: the next start")
        resumed = losses_of(case)
        case.clear()
        case.expect_end(case.start(steps, "checkpoint.every=0", ranks=1), 0, "output in", f"{name}: an undisturbed run")
        wrong = [step for step, loss in losses_of(case).items() if resumed.get(step) != loss]
        case.expect(not wrong, f"{name}: other losses from step {min(wrong, default=0)}, resumed from {newest}")


def leftovers(case):
    """case: the next start removes the temporary file of a rank that was killed while it wrote status.json, and no
    other file."""
    auto = ["checkpoint.every=2", "checkpoint.resume=auto"]
    case.expect_end(case.start("run.steps=2", *auto, ranks=1), 0, "output in", "a run")
    left = [f"{file}.a-host.b.{number}{end}" for file in ("status.json", "ranks.json") for number in (7, 123456)
            for end in ("", ".partial")]
    own = ["status.json.old", "status.json.notes", "my.status.json.12"]
    for name in left + own:
        (case.run / name).write_text("{")
    case.expect_end(case.start("run.steps=4", *auto, ranks=1), 0, "output in", "a resume")
    names = {path.name for path in case.run.iterdir()}
    case.expect(not names & set(left), f"left: {names & set(left)}")
    case.expect(names >= set(own), f"the user's files are gone: {set(own) - names}")


def without_mpi(case):
    """case: help, and commands of one process, do not start MPI; the others do."""
    none = {**os.environ, "LD_PRELOAD": case.options.preload, "KOZERO_NO_MPI": "1"}

    def status(*arguments):
        done = subprocess.run([case.options.kozero, *arguments], cwd=case.folder, env=none, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    for arguments in ((), ("help",), ("--help",), ("-h",), ("--version",), ("keys",), ("keys", "zero"), ("completion", "bash"),
                      ("train", "--help"), ("plot", "--help"), ("keys", "--help"), ("export", "-h")):
        came, said = status(*arguments)
        case.expect(came == 0 and said, f"{arguments}: status {came}", said)
    came, said = status("trian", case.options.deck)
    case.expect(came == 2 and "did you mean train?" in said, f"an unknown command: status {came}", said)
    came, said = status("plot", "nothing")
    case.expect(came == 2 or came == 3, f"plot without its file: status {came}", said)
    came, said = status("train", case.options.deck)
    case.expect(came == 99, f"train: status {came}, wanted that of MPI_Init_thread", said)
    # Only one of several processes prints.
    done = subprocess.run([*case.options.mpiexec.split(), "-n", "2", case.options.kozero, "help"], capture_output=True, text=True, check=False)
    case.expect(done.returncode == 0 and done.stdout.count("usage: kozero COMMAND") == 1, f"two: {done.returncode}", done.stdout)


run_one_case(globals())
