# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""test_stopping.py CASE KOZERO MPIEXEC PRELOAD DECK [--times N]: runs that a signal or a limit stops, or that lose
their output. Each function below whose docstring begins "case:" is a case; N repeats the random ones. Exit status 0:
all as expected.
"""
import contextlib
import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import subprocess
import time

from job import datasets
from run_case import FOREVER, blocks, run_one_case, signals_in


def signals(case):
    """case: each stop signal: a checkpoint of one step, status 75, and a printed command that resumes with the bits of
    one run."""
    kinds = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
    for i in range(case.options.times or 4):
        case.clear()
        kind, ranks = kinds[i % 4], 1 + (i + i // 4 + 1) % 2
        job = case.start("checkpoint.every=100000", FOREVER, f"zero.stage={i % 4}", ranks=ranks)
        case.wait_for_steps(job, random.randint(1, 20))
        # Hydra forwards these three to all ranks.
        whom = [job.process.pid] if case.hydra() and kind != signal.SIGHUP and i % 3 == 0 else job.ranks()
        os.kill(random.choice(whom), kind)
        name = f"{i}: {kind.name} to {'mpiexec' if whom[0] == job.process.pid and ranks > 1 else 'one'} of {ranks} ranks"
        # Hydra's own status is 0 in some of these cases; status.json has the run's status (below).
        accepted = (75, 0) if whom == [job.process.pid] and ranks > 1 else 75
        said = case.expect_end(job, accepted, rf"^\[rank 0\] stopped after step \d+ of 1000000: {kind.name} came; "
                               r"its checkpoint is run/step_\d+; to go on: .*checkpoint.resume=auto run.dir=run$", name)
        case.expect("error" not in said, f"{name}: says error", said)
        steps = case.steps()
        step = int(re.search(r"stopped after step (\d+)", said)[1])
        case.expect(steps == list(range(1, step + 1)), f"{name}: {steps} and step {step}")
        status = case.status()
        case.expect((status["state"], status.get("step"), status.get("exit_status")) == ("preempted", step, 75), f"{status}")
        case.expect_said(r"^\[rank 0\] stopped after step", (case.run / "log.txt").read_text(), f"{name}: log.txt")
        goes, said = case.run_printed_command(said, f"run.steps={step + 2}")
        case.expect(goes == 0, f"{name}: the printed command ends in {goes}", said)
        case.expect_said(rf"^resume       after step {step},", said, name)
        case.expect("the run before" not in said, f"{name}: spoke of a loss", said)
        case.expect(case.status()["state"] == "finished", f"{name}: {case.status()}")
    losses = [json.loads(line)["loss"] for line in (case.run / "metrics.jsonl").read_text().splitlines()]
    case.clear()
    case.expect_end(case.start(f"run.steps={len(losses)}", f"zero.stage={i % 4}", ranks=ranks), 0, "output in run",
                    "a whole run")
    whole = [json.loads(line)["loss"] for line in (case.run / "metrics.jsonl").read_text().splitlines()]
    case.expect(whole == losses, f"the stopped run has other losses: {losses}, not {whole}")
    case.clear()
    job = case.start(FOREVER)
    case.wait_for_steps(job)
    os.kill(job.ranks()[1], signal.SIGTERM)
    said = case.expect_end(job, 75, r"SIGTERM came; its weights are in run/weights.h5, but without checkpoint.every",
                           "without checkpoints")
    step = int(re.search(r"stopped after step (\d+)", said)[1])
    goes, said = case.run_printed_command(said, f"run.steps={step + 1}")
    case.expect(goes == 0 and f"resume       after step {step}," in said, f"weights alone: {goes}", said)
    job = case.start(FOREVER, 'run.stop_signals=["SIGUSR2"]', "run.dir=other")
    case.run = case.folder / "other"
    case.wait_for_steps(job)
    os.kill(job.ranks()[0], signal.SIGUSR2)
    case.expect_end(job, 75, r"SIGUSR2 came", "run.stop_signals")


def early_signal(case):
    """case: a signal before the first step ends all ranks at once, with status 75."""
    busy = []
    for i in range(case.options.times or 8):
        case.clear()
        if i % 4 == 2:  # with other programs on the cores
            busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
        job = case.start(FOREVER, "model.layers=24", "model.dim=256", ranks=1 + i % 2)
        # Until main begins, signals have their default effect: the system loads the program's libraries.
        case.wait_for(lambda: any(blocks(pid, signal.SIGTERM) for pid in job.processes()), job, "its first instructions")
        time.sleep(random.random() * (0.2 if not busy else 1.0))
        os.kill(random.choice([pid for pid in job.processes() if blocks(pid, signal.SIGTERM)]), signal.SIGTERM)
        # Before MPI is up a rank cannot end the others with its own status: the launcher kills them.
        said = case.expect_end(job, (75, 9), r"^\[rank \d\] stopped (by SIGTERM before|after step \d)", f"early signal {i}")
        case.expect(job.process.returncode == 75 or "before the run began" in said, f"early signal {i}: status 9", said)
        state = case.status()["state"]
        case.expect(state in ("preempted", "no status.json"), f"early signal {i}: status.json says {state}")
        if i % 4 == 3:
            while busy:
                process = busy.pop()
                process.kill()
                process.wait()
    # A launcher forwards the signal to all ranks: one line is printed.
    case.clear()
    job = case.start(FOREVER, "model.layers=24", "model.dim=256")
    case.wait_for(lambda: case.status()["state"] == "running", job, "its status")
    for pid in job.ranks():
        os.kill(pid, signal.SIGTERM)
    # On a busy machine a step may end between the look at the status and the signals.
    said = case.expect_end(job, 75, r"^\[rank \d\] stopped (by SIGTERM before the first|after) step", "all ranks")
    case.expect(len(re.findall(r"^\[rank", said, re.M)) == 1, "all ranks: not one line", said)
    case.expect(case.status()["state"] == "preempted", f"all ranks: {case.status()}", said)
    # The signal's line is still being written, slowly, when the first step would begin.
    case.clear()
    job = case.start(FOREVER, "model.layers=24", "model.dim=256", ranks=1, LD_PRELOAD=case.options.preload,
                     KOZERO_SLOW_FSYNC="log.txt", KOZERO_SLOW_SECONDS="2")
    case.wait_for(lambda: case.status()["state"] == "running", job, "its status")
    os.kill(job.process.pid, signal.SIGTERM)
    said = case.expect_end(job, 75, r"^\[rank 0\] stopped by SIGTERM before the first step; to run it again: .* "
                           r"checkpoint.resume=auto run.dir=run$", "a slow record")
    case.expect(said.count("[rank") == 1 and not case.steps(), f"steps {case.steps()} in a job that a signal ended", said)


def second_interrupt(case):
    """case: a second SIGINT ends the job while its checkpoint is being written."""
    job = case.start(FOREVER, "checkpoint.every=100000", ranks=1, LD_PRELOAD=case.options.preload, KOZERO_SLOW_FSYNC="step_",
                     KOZERO_SLOW_SECONDS="1000")
    case.wait_for_steps(job)
    os.kill(job.process.pid, signal.SIGINT)
    case.wait_for(lambda: any(case.run.glob("step_*")), job, "a save")
    os.kill(job.process.pid, signal.SIGINT)
    case.expect_end(job, 130, r"^\[rank 0\] ended at once by a second SIGINT: what was not saved is lost$", "a second SIGINT")
    status = case.status()
    case.expect((status["state"], status.get("exit_status")) == ("failed", 130), f"a second SIGINT: {status}")


def max_minutes(case):
    """case: a run stopped by run.max_minutes prints the command that resumes it, and no error."""
    case.expect_end(case.start("run.steps=4", "run.max_minutes=1e-9", "checkpoint.every=2", 'run.dir="a b"', ranks=2), 75,
                    r"^\[rank 0\] stopped after step 1 of 4: run.max_minutes = 1e-09 have passed; its checkpoint is "
                    r"a b/step_000000001; to go on: mpiexec -n 2 .*checkpoint.resume=auto 'run.dir=a b'$", "run.max_minutes")
    case.run = case.folder / "a b"
    case.expect(case.status()["state"] == "preempted", f"{case.status()}")
    # A renamed folder: the printed command resumes there.
    said = case.expect_end(case.start("run.steps=4", "run.max_minutes=1e-9", "checkpoint.every=2", 'run.dir="a b"'), 75,
                           r"^\[rank 0\] stopped after step 1 of 4: .*; its checkpoint is a b-2/step_000000001; "
                           r"to go on: .*checkpoint.resume=auto 'run.dir=a b-2'$", "a renamed folder")
    case.expect("error" not in said, "a renamed folder: says error", said)
    goes, said = case.run_printed_command(said, "run.max_minutes=0")
    case.expect(goes == 0, f"a renamed folder: the printed command ends in {goes}", said)
    case.expect_said(r"^resume       after step 1, .*, from a b-2/step_000000001$", said, "a renamed folder")
    case.expect(not (case.folder / "a b-3").exists(), "a renamed folder: a third one", said)
    job = case.start("run.steps=4", "checkpoint.every=2", 'run.dir="a b"', "checkpoint.resume=auto", "train.global_batch=8")
    case.expect_end(job, 2, "the global batch is 8 and was 4", "another deck")


def blocked_everywhere(case):
    """case: all threads of all ranks block the stop signals, so that no handler runs on a generated stack."""
    stops = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP}
    others = {signal.SIGUSR2, signal.SIGXCPU}
    job = case.start(FOREVER, ranks=2)
    case.wait_for_steps(job)
    for pid in job.ranks():
        threads = {path.parent.name: path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")}
        open_to = {thread for thread, status in threads.items() if not stops <= signals_in(status, "SigBlk")}
        case.expect(not open_to, f"threads {open_to} of {len(threads)} do not block the stop signals")
        takers = [thread for thread, status in threads.items() if not others & signals_in(status, "SigBlk")]
        case.expect(len(takers) == 1, f"threads {takers} let through what is no stop signal, wanted one")
        caught = signals_in(threads[str(pid)], "SigCgt") & (stops | others)
        case.expect(not caught, f"handlers of {caught}")
    os.kill(job.ranks()[1], signal.SIGTERM)
    case.expect_end(job, 75, "stopped after step", "SIGTERM")
    # A signal that the deck does not list ends the process as usual.
    case.clear()
    for kind, stop_signals in ((signal.SIGUSR2, '["SIGTERM"]'), (signal.SIGTERM, '["SIGUSR2"]')):
        job = case.start(FOREVER, f"run.stop_signals={stop_signals}", "checkpoint.every=100000", "run.dir=run", ranks=1)
        case.wait_for_steps(job)
        os.kill(job.process.pid, kind)
        case.expect(job.end()[0] == -kind, f"{kind.name} without its name in run.stop_signals: {job.end()}")
        case.clear()
    # A signal that was ignored at the start stays ignored.
    job = case.start(FOREVER, "checkpoint.every=100000", ranks=1, prefix=("nohup",))
    case.wait_for_steps(job)
    os.kill(job.process.pid, signal.SIGHUP)
    count = len(case.steps())
    case.wait_for_steps(job, count + 5)
    os.kill(job.process.pid, signal.SIGTERM)
    case.expect_end(job, 75, "SIGTERM came", "nohup")


def suspend(job, seconds, case, *signals):
    """Suspends the ranks for so long, and signals the last one meanwhile. Returns the number of steps before."""
    ranks = job.ranks()
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    steps = len(case.steps())
    for kind in signals:
        os.kill(ranks[-1], kind)
    time.sleep(seconds)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    return steps


def interrupted_step(case):
    """case: a step of minutes stops between micro-steps and changes no state; the run resumes from the previous
    step."""
    (case.folder / "text").write_text("".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(1500)))
    batch = ["train.global_batch=2000", "train.micro_batch=1", "checkpoint.every=100000"]
    for ranks, stage in ((1, 0), (2, 3), (1, 3), (2, 0))[:case.options.times or 2]:
        name = f"{ranks} ranks, stage {stage}"
        for _ in range(4):  # on busy cores the signal may come as a step ends, which then stops nothing within a step
            case.clear()
            job = case.start(*batch, FOREVER, f"zero.stage={stage}", ranks=ranks)
            case.wait_for(lambda: (case.run / "metrics.jsonl").exists(), job, "its first step")
            # Suspended ranks measure slow micro-steps. So after the first pause they look for signals within the next step,
            # and after the second pause that step seems to have many seconds left.
            before = suspend(job, 4.0, case)
            case.wait_for_steps(job, before + 1)
            suspend(job, 3.0, case, signal.SIGTERM)
            said = case.expect_end(job, 75, r"^\[rank 0\] stopped after step \d+ of 1000000: SIGTERM came; .*its checkpoint is "
                                            r"run/step_\d+; to go on: ", name)
            if "are discarded" in said:
                break
        case.expect_said(rf"SIGTERM came; \d+ of {2000 // ranks} micro-steps of step \d+ are discarded; its", said, name)
        step = int(re.search(r"stopped after step (\d+)", said)[1])
        case.expect(case.steps() == list(range(1, step + 1)), f"{name}: steps {case.steps()}, stopped after {step}", said)
        case.expect(f"micro-steps of step {step + 1} are" in said and f"is run/step_{step:09};" in said, f"{name}: its steps", said)
        case.expect(case.checkpoints() == [f"step_{step:09}"], f"{name}: checkpoints {case.checkpoints()}", said)
        case.expect((case.status()["state"], case.status()["step"]) == ("preempted", step), f"{name}: {case.status()}")
        goes, said = case.run_printed_command(said, f"run.steps={step + 1}")
        case.expect(goes == 0, f"{name}: the printed command ends in {goes}", said)
        case.expect_end(case.start(*batch, f"run.steps={step + 1}", f"zero.stage={stage}", "run.dir=whole", ranks=ranks), 0, "output in",
                        f"{name}, not stopped")
        whole = case.folder / "whole"
        case.expect(datasets(whole, step + 1) == datasets(case.run, step + 1), f"{name}: other bits than without the stop")
        case.run.rename(case.folder / f"run-{ranks}-{stage}")
        whole.rename(case.folder / f"whole-{ranks}-{stage}")
    # Within the first step there is no state to save.
    job = case.start("model.layers=8", "model.dim=256", "model.seq=64", "train.global_batch=800", "train.micro_batch=8", "run.steps=4",
                     "checkpoint.every=2", "run.max_minutes=1e-9", ranks=1)
    case.expect_end(job, 75, r"^\[rank 0\] stopped after step 0 of 4: run.max_minutes = 1e-09 have passed; \d+ of 100 micro-steps of "
                    r"step 1 are discarded; no step is complete, so nothing is saved; to go on: .*checkpoint.resume=auto run.dir=run$",
                    "the first step")
    case.expect(case.status()["state"] == "preempted" and not case.checkpoints(), f"the first step: {case.status()}")


def lost_output(case):
    """case: a run whose standard output is closed continues, and log.txt has its lines; a file size limit fails a
    save."""
    job = subprocess.Popen([case.options.kozero, *case.arguments("run.steps=300", "log.every=1")], cwd=case.folder, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    job.stdout.readline()
    job.stdout.close()
    errors = job.stderr.read().decode()
    case.expect(job.wait() == 0 and case.status()["state"] == "finished", f"closed output: {job.returncode}, {case.status()}", errors)
    log = (case.run / "log.txt").read_text()
    case.expect_said(r"^warning      standard output cannot be written any more; training goes on, and its lines are here alone$", log,
                     "closed output")
    case.expect("\nstep 300/300" in log and log.count("warning      standard output") == 1, "closed output: log.txt", log)
    # Other commands end like any program whose reader has ended.
    piped = subprocess.run(["bash", "-c", '"$0" keys | head -1; echo "${PIPESTATUS[0]}"', case.options.kozero], capture_output=True,
                           text=True, check=False)
    case.expect(piped.stderr == "" and piped.stdout.splitlines()[-1] in ("0", "141"), f"keys | head: {piped}")
    case.clear()
    # A file size limit: the MPI library has files of 4192 KiB in /dev/shm, this checkpoint has 19 MB.
    limited = ("bash", "-c", 'ulimit -f 4200 && exec "$@"', "bash")
    case.expect_end(case.start("run.steps=4", "checkpoint.every=2", "model.dim=256", ranks=1, prefix=limited), 4,
                    r'^\[rank 0\] error: run.dir = "run": a checkpoint takes .* and 4.1 MiB \(4300800 bytes\) is the size limit of a '
                    r"file \(ulimit -f\)", "ulimit -f and a checkpoint")
    case.expect_end(case.start(FOREVER, "checkpoint.every=1000000", ranks=1, prefix=limited), 4,
                    r"^\[rank 0\] error: run/metrics.jsonl: cannot write: File too large \(step \d+\); its checkpoint is run/step_",
                    "ulimit -f and metrics")
    case.expect(case.status()["state"] == "failed", f"ulimit -f: {case.status()}")


SCRIPT = """
take_signals
binary_of() { echo "$KOZERO"; }
run_ranks release 2 "$@"
"""


def script_status(case):
    """case: kozero.sh ends with the run's own status, whatever status its launcher gives after a signal."""
    repository = pathlib.Path(case.options.deck).parent.parent
    text = (repository / "kozero.sh").read_text()
    case.expect(text.endswith('\nmain "$@"\n'), "kozero.sh does not end in main")
    script = case.folder / "kozero.sh"
    script.write_text(text.removesuffix('main "$@"\n') + SCRIPT)
    (case.folder / "src/program").mkdir(parents=True)
    for part in ("launcher.sh", "restarts.sh"):
        shutil.copy(repository / "src/program" / part, case.folder / "src/program")
    build = case.folder / "build" / "release"
    build.mkdir(parents=True)
    (build / "CMakeCache.txt").write_text("KOZERO_MPIEXEC:INTERNAL=" + ";".join(case.options.mpiexec.split()) + "\n")
    environment = {**os.environ, "KOZERO": case.options.kozero, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}

    def start(*overrides, **more):
        return subprocess.Popen(["bash", str(script), *case.arguments(*overrides)], cwd=case.folder, env=environment, stdin=subprocess.DEVNULL,
                                start_new_session=True, **more)

    def wait_for_steps(count=3):
        end = time.monotonic() + 60
        while len(case.steps()) < count and time.monotonic() < end:
            time.sleep(0.02)

    # Ctrl-C in a terminal: SIGINT to its foreground process group.
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(case.folder)
        os.execvpe("bash", ["bash", str(script), *case.arguments(FOREVER, "checkpoint.every=100000")], environment)
    wait_for_steps()
    os.write(terminal, b"\x03")
    said = b""
    with contextlib.suppress(OSError):  # the terminal's last process has ended
        while part := os.read(terminal, 4096):
            said += part
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    case.expect(status == 75, f"Ctrl-C in a terminal: status {status}, wanted 75", said.decode(errors="replace"))
    case.expect_said(r"\[rank 0\] stopped after step \d+ of 1000000: SIGINT came; its checkpoint is run/step_", said.decode(errors="replace"),
                     "Ctrl-C in a terminal")
    for kind, to_group in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGHUP, False)):
        case.clear()
        job = start(FOREVER, "checkpoint.every=100000", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for_steps()
        os.kill(-job.pid if to_group else job.pid, kind)
        said = job.communicate()[0].decode()
        case.expect(job.returncode == 75, f"{kind.name} to the script: status {job.returncode}, wanted 75", said)
        case.expect(case.status()["state"] == "preempted", f"{kind.name} to the script: {case.status()}", said)
    # The reader ends.
    case.clear()
    job = start("run.steps=300", "log.every=1", stdout=subprocess.PIPE)
    job.stdout.readline()
    job.stdout.close()
    case.expect(job.wait() == 0 and case.status()["state"] == "finished", f"closed output: {job.returncode}, {case.status()}")
    refused = start("model.heads=3", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = refused.communicate()[0].decode()
    case.expect(refused.returncode == 2 and "model.heads" in said, f"a refused deck: status {refused.returncode}", said)


run_one_case(globals())
