# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# check_layers.py COMPILER PATHS_FOLDER SOURCE: with each folder's own include paths, a header of a folder that it may
# not see must not be found, and one of its own must be.

import pathlib
import subprocess
import sys

BELOW = {
    "core": "",
    "kernels": "core",
    "dist": "core",
    "model": "core kernels",
    "optim": "core kernels",
    "zero": "core kernels dist",
    "io": "core dist",
    "exchange": "core kernels dist model io",
    "train": "core kernels dist model optim zero io",
    "plan": "core kernels dist model optim zero io train",
    "commands": "core kernels dist model optim zero io exchange train plan",
}


def a_header_of(source, folder):
    beside = source / folder
    home = beside if beside.is_dir() else source / "include" / "kozero" / folder
    headers = sorted(home.glob("*.hpp"))
    return f"kozero/{folder}/{headers[0].name}" if headers else None


def finds(compiler, paths, header):
    """Whether the compiler, with these include paths, finds the header (all that it includes must not be found too)."""
    command = [compiler, "-std=c++20", "-E", "-o", "/dev/null", "-x", "c++", "-"] + [f"-I{path}" for path in paths]
    result = subprocess.run(command, input=f"#include <{header}>\n", capture_output=True, text=True)
    return f"<stdin>:1:10: fatal error: {header}" not in result.stderr


def main():
    compiler, paths_folder, source = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    wrong, tried = [], 0
    for file in sorted(paths_folder.glob("*.paths")):
        folder, paths = file.stem, file.read_text().split()
        if folder not in BELOW:
            wrong.append(f"{folder} has no row in check_layers.py: say which folders lie below it")
            continue
        for other in BELOW:
            header = a_header_of(source, other)
            if header is None or (other != folder and other in BELOW[folder].split()):
                continue
            tried += 1
            found = finds(compiler, paths, header)
            if found and other != folder:
                wrong.append(f"{folder} can include <{header}>, against the layers")
            if not found and other == folder:
                wrong.append(f"{folder} cannot include its own <{header}>")
    print("\n".join(wrong) if wrong else f"{tried} includes tried, all as the layers say")
    return 1 if wrong or tried == 0 else 0


sys.exit(main())
