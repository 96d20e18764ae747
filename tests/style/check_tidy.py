# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""check_tidy.py SOURCE BUILD [--files N] [--seed S] [--jobs J]: clang-tidy, with the checks of .clang-tidy, on sources.

All sources, or N of them chosen by a seed (default: the hours since 1970), which the output names. Takes about 4 s per
source and core. clang cannot read a gcc build's precompiled headers, so they are removed from the commands.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time


def commands(source, build):
    """The compile commands of the program's sources, one per source, as clang understands them."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(source) or path.is_relative_to(build) or path in found:
            continue
        if path.relative_to(source).parts[0] not in ("src", "kernels", "io") or path.suffix != ".cpp":
            continue
        command = re.sub(r"-Winvalid-pch|-include \S*cmake_pch\.hxx|-Wno-\S+", "", entry["command"])
        found[path] = {**entry, "command": command}
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--files", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 3600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tidy", default="clang-tidy-14")
    given = parser.parse_args()
    known = commands(given.source.resolve(), given.build.resolve())
    chosen = sorted(known)
    if given.files and given.files < len(chosen):
        chosen = sorted(random.Random(given.seed).sample(chosen, given.files))
        print(f"{given.files} of {len(known)} sources, drawn by seed {given.seed}; all: without --files")

    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "compile_commands.json").write_text(json.dumps([known[path] for path in chosen]))

        def check(path):
            tidy = [given.tidy, "-p", folder, "--quiet", f"--config-file={given.source}/.clang-tidy", str(path)]
            return subprocess.run(tidy, capture_output=True, text=True)

        wrong = 0
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            for path, result in zip(chosen, pool.map(check, chosen)):
                said = result.stdout + result.stderr
                # clang 14 does not compile lambdas that use structured bindings; gcc does.
                complaints = [line for line in said.splitlines() if "error:" in line and "clang-diagnostic" not in line]
                if complaints or (result.returncode != 0 and "clang-diagnostic" not in said):
                    wrong += 1
                    print(f"{path.relative_to(given.source.resolve())}:\n{said}")
    print(f"{len(chosen)} sources, {wrong} with complaints")
    return 1 if wrong or not chosen else 0


sys.exit(main())
