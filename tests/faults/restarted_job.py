# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""restarted_job.py: `kozero.sh --restarts N [--hosts FILE] train` in a folder of its own, and hosts that are namespaces.

Used by test_restarts.py and ../cluster/test_hosts.py. Python 3.9 or newer with only its standard library, Linux.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import job

ROOT = pathlib.Path(__file__).resolve().parents[2]


def status_on_hosts(number, rate=0):
    """Runs this program again beside hosts that are namespaces (tests/cluster), with links of that many Mbit/s; 0: not
    limited. Returns its status, or None if this is that second run, which has HOSTS_FOLDER in its environment."""
    if "HOSTS_FOLDER" in os.environ:
        return None
    script = str(ROOT / "tests/cluster/network_namespaces.sh")
    if status := subprocess.run([script, "check"]).returncode:
        return status
    return subprocess.run([script, str(number), "1", str(rate), "beside", sys.executable, *sys.argv]).returncode


class Script:
    """kozero.sh in a folder with the program, without what installs and builds."""

    def __init__(self, folder, arguments):
        self.folder, self.deck, self.kozero, self.supervisor = folder, arguments.deck, arguments.kozero, None
        job.write_text(folder)
        tree = folder / "tree"
        (tree / "build/release").mkdir(parents=True)
        (tree / "src/program").mkdir(parents=True)
        for part in ("launcher.sh", "restarts.sh"):
            shutil.copy(ROOT / "src/program" / part, tree / "src/program")
        text = (ROOT / "kozero.sh").read_text().removesuffix('main "$@"\n')
        (tree / "kozero.sh").write_text(text + 'ensure_configured() { :; }\nbuild_target() { :; }\nmain "$@"\n')
        (tree / "build/release/kozero").symlink_to(arguments.kozero)
        mpiexec = arguments.mpiexec.replace(" ", ";")
        (tree / "build/release/CMakeCache.txt").write_text(f"KOZERO_MPIEXEC:INTERNAL={mpiexec}\n")
        self.script = tree / "kozero.sh"

    def command(self, options, *overrides):
        return ["bash", str(self.script), *options, "train", self.deck, *job.SMALL, f'data.text=["{self.folder}/text"]',
                f"run.dir={self.folder}/run", *overrides]

    def environment(self, **settings):
        probe_s = os.environ.get("KOZERO_PROBE_S", "1")
        return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "KOZERO_PROBE_S": probe_s, **settings}

    def start(self, options, *overrides, **settings):
        self.said = self.folder / "said.txt"
        with open(self.said, "wb") as said:
            self.supervisor = subprocess.Popen(self.command(options, *overrides), stdout=said, stderr=subprocess.STDOUT,
                                               stdin=subprocess.DEVNULL, env=self.environment(**settings), cwd=self.folder,
                                               start_new_session=True)  # a process group, as of a terminal's job
        return self.supervisor

    def end(self):
        """Ends what a failed case has left."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            return
        left = below(self.supervisor.pid, "")
        for process in [self.supervisor.pid, *left]:
            kill(process)
        self.supervisor.wait()

    def undisturbed(self, *overrides):
        command = [self.kozero, "train", self.deck, *job.SMALL, f'data.text=["{self.folder}/text"]', "run.ranks=1",
                   f"run.dir={self.folder}/alone", *overrides]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self.environment(), cwd=self.folder)

    def equal_weights(self, first="alone", other="run"):
        runs = [str(self.folder / run / "weights.h5") for run in (first, other)]
        compared = subprocess.run([self.kozero, "inspect", "--diff", *runs], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=self.environment())
        return compared.returncode == 0, compared.stdout.decode(errors="replace")

    def rows(self):
        """(time, step) of each step that metrics.jsonl has."""
        try:
            lines = (self.folder / "run/metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            try:
                row = json.loads(line)
                rows.append((row["time"], row["step"]))
            except (ValueError, KeyError):
                pass  # a line that is being written
        return rows


def below(parent, name):
    """The living descendants of a process whose name begins so."""
    parents, found = dict(job.processes()), []
    for process in parents:
        above = process
        while above in parents and above != parent:
            above = parents[above]
        try:
            command = pathlib.Path(f"/proc/{process}/comm").read_text()
        except OSError:
            continue
        if above == parent and process != parent and command.startswith(name) and job.lives(process):
            found.append(process)
    return found


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
