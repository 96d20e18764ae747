# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_run_folder.py CASE KOZERO MPIEXEC PRELOAD DECK [--times N]: runs whose folder is moved or replaced, or loses its
lock. Each function below whose docstring begins "case:" is a case; N repeats the random one. Exit status 0: all as
expected.
"""
import os
import random
import shutil
import signal
import subprocess
import time

from run_case import FOREVER, run_one_case

MOVED = r"run: this run's folder is not there any more: it was deleted or moved"
REPLACED = r"run: this is not the folder that the run began in: it was deleted or moved, and another came"
AUTO = "checkpoint.resume=auto"


def contents(folder):
    """Every file, folder and link in a folder."""
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def swap(case, other):
    """Atomically points the run's link to another folder."""
    (case.folder / "new").symlink_to(other.name)
    os.replace(case.folder / "new", case.run)


def begin_behind_link(case, *overrides, **more):
    """A run in the folder `own`, started with the link `run`."""
    own = case.folder / "own"
    own.mkdir()
    case.run.symlink_to(own.name)
    return own, case.start(AUTO, *overrides, **more)


def expect_verified(case, folder, what):
    for checkpoint in sorted(folder.glob("step_*")):
        done = subprocess.run([case.options.kozero, "inspect", checkpoint, "--verify"], capture_output=True, text=True, check=False)
        case.expect(done.returncode == 0, f"{what}: {checkpoint.name} is broken", done.stderr)


def expect_resumes(case, own, what):
    """Checks that the run's own folder, back at its path, has complete checkpoints, and that the run resumes from the
    newest."""
    expect_verified(case, own, what)
    if case.run.is_symlink():
        case.run.unlink()
    own.rename(case.run)
    newest = int(case.checkpoints()[-1].removeprefix("step_"))
    case.expect_end(case.start(AUTO, "checkpoint.every=2", f"run.steps={newest + 2}"), 0, rf"^resume       after step {newest},", what)


def slow_save(case, file):
    return {"LD_PRELOAD": case.options.preload, "KOZERO_SLOW_FSYNC": file, "KOZERO_SLOW_SECONDS": "3"}


def swapped_in_save(case):
    """case: the link to the run's folder is pointed to a copy during a save: the copy does not change."""
    for asynchronous, ranks in (("true", 2), ("false", 1)):
        own, job = begin_behind_link(case, FOREVER, "checkpoint.every=3", "checkpoint.keep=1", f"checkpoint.async={asynchronous}",
                                     ranks=ranks, **slow_save(case, "step_000000006.partial/state.h5"))
        case.wait_for(lambda: (own / "step_000000006.partial" / "state.h5").exists(), job, "a save")
        time.sleep(0.5)
        other = case.folder / "other"
        shutil.copytree(own, other)
        before = contents(other)
        swap(case, other)
        said = case.expect_end(job, 4, rf"^\[rank 0\] error: (the checkpoint of step 6: )?{REPLACED}", f"async={asynchronous}")
        case.expect(said.count("] error: ") == 1, f"async={asynchronous}: not one line", said)
        case.expect(contents(other) == before, f"async={asynchronous}: the other folder was changed", said)
        case.expect((own / "step_000000003").exists(), f"async={asynchronous}: the older checkpoint is gone", said)
        expect_resumes(case, own, f"async={asynchronous}")
        case.clear()
        shutil.rmtree(other)


def swapped_before_weights(case):
    """case: the same while the weights file is written."""
    own, job = begin_behind_link(case, "run.steps=4", "checkpoint.every=2", **slow_save(case, "weights.h5"))
    case.wait_for(lambda: (own / "weights.h5.partial").exists(), job, "its weights file")
    time.sleep(0.5)
    other = case.folder / "other"
    shutil.copytree(own, other)
    before = contents(other)
    swap(case, other)
    said = case.expect_end(job, 4, rf"^\[rank 0\] error: {REPLACED}", "weights.h5")
    case.expect(contents(other) == before, "weights.h5: the other folder was changed", said)
    case.expect(not (own / "weights.h5.partial").exists(), "weights.h5.partial stays", said)
    expect_verified(case, own, "weights.h5")


def moved_in_save(case):
    """case: a folder that is moved during a save is not made again, and keeps its checkpoints."""
    for on_error in ("stop", "continue"):
        job = case.start(FOREVER, AUTO, "checkpoint.every=3", "checkpoint.async=false", f"checkpoint.on_error={on_error}",
                         **slow_save(case, "step_000000006.partial/state.h5"))
        case.wait_for(lambda: (case.run / "step_000000006.partial" / "state.h5").exists(), job, "a save")
        own = case.folder / "own"
        case.run.rename(own)
        said = case.expect_end(job, 4, rf"^\[rank 0\] error: (the checkpoint of step 6: )?{MOVED}", f"on_error={on_error}")
        case.expect("/proc/" not in said, f"on_error={on_error}: a path of the program's own", said)
        case.expect(not case.run.exists(), f"on_error={on_error}: the folder came back", said)
        case.expect(not list(own.glob("*.partial")), f"on_error={on_error}: a part of a checkpoint stays", said)
        expect_resumes(case, own, f"on_error={on_error}")
        case.clear()


def lock_file(case):
    """case: if the lock file is removed or replaced, the lock still holds, and the run continues."""
    lock = case.run / "lock"
    for change in ("removed", "emptied"):
        job = case.start(FOREVER, AUTO, "checkpoint.every=100000")
        case.wait_for_steps(job)
        lock.unlink()
        if change == "emptied":
            lock.write_bytes(b"")
        case.expect_end(case.start(FOREVER, AUTO, ranks=1), 2, "another run is at work there", f"{change}: a second start")
        time.sleep(1.2)  # the run checks once per second
        time.sleep(1.2)  # the run checks once per second
        count = len(case.steps())
        case.wait_for_steps(job, count + 5)
        os.kill(job.ranks()[0], signal.SIGTERM)
        case.expect_end(job, 75, r"SIGTERM came; its checkpoint is run/step_", change)
        case.clear()


def random_moments(case):
    """case: at a random moment the folder is moved, its link changed, or its lock removed or replaced; nothing is
    lost."""
    kinds = ("moved", "swapped", "removed", "replaced")
    counts = dict.fromkeys(kinds, 0)
    for i in range(case.options.times or 4):
        kind, ranks = kinds[i % 4], 1 + (i // 4) % 2
        name, before = f"{i}: {kind}, {ranks} ranks", case.failures
        own, other = case.folder / "own", case.folder / "other"
        settings = [FOREVER, AUTO, "checkpoint.every=2", "checkpoint.keep=2", f"checkpoint.async={('true', 'false')[i // 8 % 2]}"]
        if kind == "swapped":
            own, job = begin_behind_link(case, *settings, ranks=ranks)
        else:
            job = case.start(*settings, ranks=ranks)
        case.wait_for_steps(job, random.randint(3, 20))
        case.wait_for(case.checkpoints, job, "a checkpoint, from which it resumes")
        time.sleep(random.random() * 0.1)
        if kind == "moved":
            case.run.rename(own)
            case.expect_end(job, 4, rf"^\[rank 0\] error: (the checkpoint of step \d+: )?{MOVED}", name)
            case.expect(not case.run.exists(), f"{name}: the folder came back")
            expect_resumes(case, own, name)
        elif kind == "swapped":
            other.mkdir()
            if i // 4 % 2 == 0:  # files that the run removes meanwhile are not copied
                subprocess.run(["cp", "-r", f"{own}/.", other], stderr=subprocess.DEVNULL, check=False)
            found = contents(other)
            swap(case, other)
            case.expect_end(job, 4, rf"^\[rank 0\] error: (the checkpoint of step \d+: )?{REPLACED}", name)
            case.expect(contents(other) == found, f"{name}: the other folder was changed")
            expect_resumes(case, own, name)
            shutil.rmtree(other)
        else:
            (case.run / "lock").unlink()
            if kind == "replaced":
                (case.run / "lock").write_text("")
            case.expect_end(case.start(*settings, ranks=1), 2, "another run is at work there", f"{name}: a second start")
            os.kill(job.ranks()[0], signal.SIGTERM)
            case.expect_end(job, 75, r"SIGTERM came; its checkpoint is run/step_", name)
            expect_verified(case, case.run, name)
        counts[kind] += case.failures == before
        case.clear()
    print(f"as expected: {counts}")


run_one_case(globals())
