# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# check_layers.py SOURCE: each #include of the project's own files names an existing file, of the same folder or of one
# below it; src/<folder>/, kernels/*/host, kernels/*/cuda and the headers in PRIVATE are for their own folder alone. The
# build runs it, so a wrong-way include does not build.

import pathlib
import re
import sys

BELOW = {
    "core": "",
    "kernels": "core",
    "distributed": "core",
    "model": "core kernels",
    "optim": "core kernels",
    "zero": "core kernels distributed",
    "io": "core distributed",
    "data": "core distributed io",
    "huggingface": "core kernels distributed model io",
    "train": "core kernels distributed model optim zero io data",
    "plan": "core kernels distributed model optim zero io data train",
    "run": "core kernels distributed model optim zero io data huggingface train plan",
    "program": "core kernels distributed model optim zero io data huggingface train plan run",
    "report": "core kernels distributed model optim zero io data train plan",
    "commands": "core kernels distributed model optim zero io data huggingface train plan run program report",
    "bench": "core kernels distributed model optim zero io data huggingface train plan run program",
}
PRIVATE = {"io/deck/toml_keys.hpp", "io/safetensors/float_formats.hpp", "io/text/bpe_merges.hpp",
           "io/text/bpe_tokenizer.hpp", "io/text/sentencepiece_tokenizer.hpp", "kernels/launch/packs.hpp",
           "kernels/launch/vector_math.hpp"}


def folder_of(path):
    """The folder of a path from the root, and whether the path is private to it; None if the folder is no layer."""
    parts = pathlib.PurePath(path).parts
    if parts[0] == "kernels":
        return "kernels", len(parts) > 3 or str(path) in PRIVATE
    if parts[0] == "io":
        return "io", str(path) in PRIVATE
    if parts[:2] == ("include", "kozero"):
        return parts[2], False
    return (parts[1], True) if parts[0] == "src" and len(parts) > 2 else (None, False)


def wrong_includes(source, file):
    folder, _ = folder_of(file)
    if folder is None:
        return
    for number, line in enumerate((source / file).read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(?:<(kozero/[^>]+)>|"([^"]+)")', line)
        if not match:
            continue
        target = f"include/{match[1]}" if match[1] else match[2]
        if target == "build_facts.hpp":  # written when the program is configured
            continue
        if not (source / target).is_file():
            yield f"{file}:{number}: {target} is not there; paths are from the root"
            continue
        other, private = folder_of(target)
        if other == folder:
            continue
        if other not in BELOW[folder].split():
            yield f"{file}:{number}: {folder} may not include {other}; it may include: {BELOW[folder] or 'nothing'}"
        elif private:
            yield f"{file}:{number}: {target} is private to {other}"


def main():
    source = pathlib.Path(sys.argv[1])
    files = [path.relative_to(source) for top in ("src", "include", "kernels", "io")
             for path in sorted((source / top).rglob("*.[ch]pp"))]
    unknown = sorted({str(folder_of(file)[0]) for file in files} - {*BELOW, "None"})
    wrong = [f"{folder} has no row in check_layers.py: say which folders lie below it" for folder in unknown]
    wrong += [line for file in files if folder_of(file)[0] in {*BELOW, None} for line in wrong_includes(source, file)]
    print("\n".join(wrong) if wrong else f"{len(files)} files include only what lies below them")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
