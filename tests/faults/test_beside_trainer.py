# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_beside_trainer.py CASE KOZERO MPIEXEC PRELOAD DECK [--times N]: commands that read a run's newest checkpoint
while its trainer removes it. Each function below whose docstring begins "case:" is a case; N: commands beside the
trainer. Exit status 0: all as expected.
"""
import os
import shutil
import signal
import subprocess
import sys

from run_case import FOREVER, PATIENCE, run_one_case

SHORT = ["--tokens", "4", "--prompt", "line"]


def commands(case):
    """The arguments of each command that reads the newest checkpoint of `run`, by name."""
    train = case.arguments("run.dir=next", "run.steps=1000001", "run.max_minutes=1e-9")
    return {
        "export": ["export", "run", "out"],
        "export weights": ["export", "run", "out", "--weights-only"],
        "inspect": ["inspect", "run"],
        "inspect --verify": ["inspect", "run", "--verify"],
        "inspect --stats": ["inspect", "run", "--stats"],
        "inspect --diff": ["inspect", "run", "--diff", "run"],
        "eval": ["eval", "run", 'data.text=["text"]'],
        "generate": ["generate", "run", *SHORT],
        "resume": [*train, "checkpoint.resume=run"],
        "model.init": [*train, "model.init=run"],
    }


def call(case, arguments, **environment):
    """The status and output of a command. Removes the files that it makes."""
    try:
        done = subprocess.run([case.options.kozero, *arguments], cwd=case.folder, capture_output=True, text=True, errors="replace",
                              env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", **environment}, timeout=PATIENCE,
                              check=False)
    except subprocess.TimeoutExpired as late:
        return "it hangs", str(late)
    for made in ("out", "next"):
        path = case.folder / made
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    return done.returncode, done.stdout + done.stderr


def removed_checkpoint(case):
    """case: the newest checkpoint is removed when a command opens one of its files, each in turn: the next newest is
    read."""
    case.expect_end(case.start("run.steps=6", "checkpoint.every=3", "checkpoint.keep=0", ranks=1), 0, "output in", "a run")
    (case.run / "weights.h5").unlink()
    newest = case.run / "step_000000006"
    removed = newest.with_suffix(".partial")
    for name, arguments in commands(case).items():
        times = 0
        for file in ("manifest.json", "deck.toml", "state.h5"):
            for number in range(1, 7):
                status, said = call(case, arguments, LD_PRELOAD=case.options.preload, KOZERO_REMOVE_AT=f"{number} {newest.name}/{file}")
                ok = (0, 75) if name in ("resume", "model.init") else (0,)
                case.expect(status in ok, f"{name}, {file} at open {number}: status {status}", said)
                if not removed.exists():
                    break
                times += 1
                removed.rename(newest)
        case.expect(times > 0, f"{name}: it opened nothing in {newest}")
        print(f"{name}: removed {times} times")
    # A checkpoint given by its own path is not replaced by another.
    status, said = call(case, ["inspect", f"run/{newest.name}", "--verify"], LD_PRELOAD=case.options.preload,
                        KOZERO_REMOVE_AT=f"1 {newest.name}/state.h5")
    case.expect(status == 3 and newest.name in said, f"a checkpoint by its name: status {status}", said)


def pruning_trainer(case):
    """case: while a trainer saves every step and keeps one checkpoint, every command finds one to read."""
    job = case.start(FOREVER, "checkpoint.every=1", "checkpoint.keep=1", ranks=1)
    case.wait_for(lambda: case.checkpoints(), job, "a checkpoint")
    all_commands = commands(case)
    failures = dict.fromkeys(all_commands, 0)
    times = case.options.times or len(all_commands)
    for i in range(times):
        name = list(all_commands)[i % len(all_commands)]
        status, said = call(case, all_commands[name])
        ok = (0, 75) if name in ("resume", "model.init") else (0,)
        failures[name] += status not in ok
        case.expect(status in ok, f"{i}: {name}: status {status}", said)
    os.kill(job.process.pid, signal.SIGTERM)
    case.expect_end(job, 75, r"SIGTERM came; its checkpoint is run/step_", "the trainer")
    print(f"{times} commands, failures: {failures}", file=sys.stdout)


run_one_case(globals())
