#!/usr/bin/env python3
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""Mutants of KoZeRO's device code and of its streams.

  mutants.py BUILD HOST [--each 6]   HOST is the host's kozero

In the PTX a barrier is omitted, or a load or store is one element too high: for each kernel test, --each of the
executed barriers and --each of the accesses. In the host code the waits, or the records of an event, at one place are
omitted, for every place that a run of emulate.py reaches. A mutant is caught if the test fails or the emulator reports
something. Prints each mutant and how it ended."""

import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Test program, its cases that run, and the stride between mutated accesses.
TESTS = (
    ("test_attention", "attention agrees with plain loops*", 97),
    ("test_row_kernels", "layernorm*,rmsnorm*,bias*,embedding*,rope*,swiglu*,qk_norm*", 31),
    ("test_cross_entropy", "cross-entropy*", 23),
    ("test_element_kernels", "*", 13),
)
# Cases of emulate.py whose waits are omitted.
RUNS = ("offload bf16", "stages on 2 ranks, exact true, NCCL", "stages on 2 ranks, exact false, NCCL", "checkpoint and")


def emulate(build, host, case, settings=""):
    command = [HERE / "emulate.py", build, host, "whole", "--only", case, "--seeds", "7", "--settings", settings]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def require_case(build, host, case):
    """Whether the case exists and passes without a mutant: the table then has a row below its header."""
    done = emulate(build, host, case)
    if done.returncode or len(done.stdout.splitlines()) < 2:
        sys.exit(f"{case}: without a mutant it fails, or is not there (KOZERO_TESTS=ON?): {done.stdout[-500:]}")


def run_without_wait(build, host, case, place):
    """The omitted place of the case, and how the case ended. None if the case reaches fewer places."""
    done = emulate(build, host, case, f"skip={place}")
    if "timed out" in done.stdout:
        return f"place {place}", "caught: does not end"
    planted = re.findall(r"^gpu_emulator: mutant: no (.*)$", done.stdout, re.M)
    if not planted:
        return None, ""
    name = planted[0]
    if at := re.fullmatch(r"(\w+) at (0x[0-9a-f]+)", name):
        command = ["addr2line", "-Cfe", str(build / "kozero-cuda"), at.group(2)]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        name = f"{at.group(1)} of {lines[0].split('(')[0] if lines else at.group(2)}"
    finding = re.search(r"^.*FAILED: gpu_emulator: (\w+):", done.stdout, re.M)
    how = f"caught: {finding.group(1) if finding else 'wrong values'}" if done.returncode else "SURVIVED"
    return name, how


def run_test(build, test, cases, settings):
    environment = {**os.environ, "KOZERO_GPU_EMULATOR": settings, "OMP_NUM_THREADS": "1"}
    command = [HERE / "emulated.sh", build / "gpu_emulator", build / "tests" / "kernels" / test, cases]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, timeout=120)


def run(build, test, cases, mutant):
    try:
        done = run_test(build, test, cases, f"seed=7,{mutant}")
    except subprocess.TimeoutExpired:
        return "?", "caught: does not end"
    text = done.stdout + done.stderr
    planted = re.search(r"^gpu_emulator: mutant: (.*?) of (\S+)$", text, re.M)
    if not planted:  # these cases do not execute the kernel or that path of it
        return None, ""
    finding = re.search(r"^gpu_emulator: (?!mutant)(\w+):", text, re.M)
    how = f"caught: {finding.group(1)}" if finding else "caught: wrong values" if done.returncode else "SURVIVED"
    families = "attention|layernorm|rmsnorm|bias|embedding|rope|swiglu|qk_norm|cross|add_to_softmax|gelu|adamw|sgd"
    kernel = re.search(rf"\d\d?((?:{families})_?\w*?)(?:I|$)", planted.group(2))
    return f"{planted.group(1)} of {kernel.group(1) if kernel else planted.group(2)[:60]}", how


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("host", type=pathlib.Path)
    parser.add_argument("--each", type=int, default=6)
    given = parser.parse_args()
    build, host, all_mutants, survived = given.build.resolve(), given.host.resolve(), 0, 0
    for test, cases, stride in TESTS:
        if run_test(build, test, cases, "seed=7").returncode:
            sys.exit(f"{test}: without a mutant it fails, or is not built (KOZERO_TESTS=ON?)")
        mutants = [f"drop={k}" for k in range(1, 3 * given.each)]
        mutants += [f"shift={1 + k * stride}" for k in range(3 * given.each)]
        executed = {"drop": 0, "shift": 0}
        for mutant in mutants:
            kind = mutant.split("=")[0]
            planted, how = run(build, test, cases, mutant) if executed[kind] < given.each else (None, "")
            if planted is None:
                continue
            executed[kind] += 1
            all_mutants += 1
            survived += how == "SURVIVED"
            print(f"{test:22} {mutant:10} {how:22} {planted}", flush=True)
    for case in RUNS:
        require_case(build, host, case)
        place = 1
        while (mutant := run_without_wait(build, host, case, place))[0] is not None:
            all_mutants += 1
            survived += mutant[1] == "SURVIVED"
            print(f"{case[:22]:22} {f'skip={place}':10} {mutant[1]:22} {mutant[0]}", flush=True)
            place += 1
    print(f"{all_mutants} mutants, {survived} survived")
    sys.exit(1 if all_mutants == 0 else 0)


if __name__ == "__main__":
    main()
