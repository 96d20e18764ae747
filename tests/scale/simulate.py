#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# simulate.py FOLDER RANKSxRANKS_PER_NODExGBITxSTAGExLINKS ...: simulates steps on clusters with the programs in FOLDER
# (build/release/tests/scale) and prints a row of a table for each. LINKS: flows or queues (machine.hpp). Exit status 1:
# a row differs from the plan; 77: SimGrid is missing. --keep FILE: appends all numbers.
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MEMORY = 20e9  # bytes per second that a rank reads and writes
TERAFLOPS = 2.0  # of a rank
COLUMNS = (
    ("ranks x per node, Gbit/s, stage, links", lambda v: v["name"]),
    ("step, plan, ms", lambda v: f"{1e3 * v['step_s'][0]:.1f}, {1e3 * v['step_s'][1]:.1f}"),
    ("exposed, plan, ms", lambda v: f"{1e3 * v['exposed_s'][0]:.1f}, {1e3 * v['exposed_s'][1]:.1f}"),
    ("requests", lambda v: f"{v['requests'][0]:,.0f}"),
    ("MiB sent", lambda v: f"{v['bytes_sent'][0] / 2**20:.1f}"),
    ("start, ms", lambda v: f"{1e3 * sum(v[key][0] for key in v if key in STARTS):.1f}"),
    ("save, ms", lambda v: f"{1e3 * v['save_s'][0]:.2f}"),
    ("save, KiB", lambda v: f"{v['save_bytes'][0] / 2**10:.1f}"),
    ("wall, s", lambda v: f"{v['wall']:.0f}"),
    ("GiB", lambda v: f"{v['peak']:.1f}"),
)
STARTS = ("environment_s", "control_s", "agreements_s", "mesh_s", "state_s", "publish_s")


def numbers_of(text):
    rows = (line.split() for line in text.splitlines())
    return {row[0]: [float(word) if word != "-" else None for word in row[1:3]] for row in rows}


def simulated(folder, case):
    ranks, per_node, gbit, stage, links = case.split("x")
    deck = pathlib.Path(__file__).with_name("model.toml")
    with tempfile.NamedTemporaryFile("w", suffix=".plan") as plan:
        arguments = [ranks, per_node, gbit, str(MEMORY)]
        subprocess.run([folder / "write_plan", deck, *arguments, str(TERAFLOPS), stage], stdout=plan, check=True)
        start = time.monotonic()
        command = [folder / "simulated_ranks", plan.name, *arguments, links]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        text = run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode not in (0, 1) or "step_s" not in text:
        sys.exit(f"{case}: simulated_ranks ended with status {run.returncode}")
    values = numbers_of(text)
    values["name"] = f"{ranks} x {per_node}, {gbit}, {stage}, {links}"
    values["wall"] = time.monotonic() - start
    values["peak"] = usage.ru_maxrss / 2**20
    differing = [line for line in text.splitlines() if line.endswith("DIFFERS")]
    return values, differing, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--keep")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OMP_PROC_BIND="false")
    if not (options.folder / "simulated_ranks").exists():
        print("skipped: needs SimGrid: cmake/install_packages.sh scale")
        return 77
    print("| " + " | ".join(title for title, _ in COLUMNS) + " |\n|" + " --- |" * len(COLUMNS))
    differs = False
    for case in options.cases:
        values, differing, text = simulated(options.folder, case)
        print("| " + " | ".join(value(values) for _, value in COLUMNS) + " |", flush=True)
        for line in differing:
            print(f"{case}: {line}", file=sys.stderr)
        differs = differs or bool(differing)
        if options.keep:
            with open(options.keep, "a") as file:
                file.write(f"== {case}\n{text}")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
