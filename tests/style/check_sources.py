# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# check_sources.py RULE SOURCE: one rule of the house style over the whole tree; prints each place that breaks it.

import json
import os
import pathlib
import re
import subprocess
import sys

CODE = (".cpp", ".hpp")
SCRIPTS = (".sh", ".py", ".cmake")
LEFT_OUT = {".git", "build", "runs", "__pycache__", "fixtures"}


def files(source, *endings):
    """The tree's files with these endings, and CMakeLists.txt among the scripts, relative to its root."""
    for folder, subfolders, names in os.walk(source):
        subfolders[:] = [name for name in sorted(subfolders) if name not in LEFT_OUT]
        for name in sorted(names):
            path = pathlib.Path(folder, name).relative_to(source)
            if path.suffix in endings or (name == "CMakeLists.txt" and ".cmake" in endings):
                yield path


def lines_matching(source, pattern, allowed):
    """Lines of code that hold the pattern outside the allowed places (beginnings of paths)."""
    for path in files(source, *CODE):
        if str(path).startswith(allowed):
            continue
        for number, line in enumerate((source / path).read_text().splitlines(), 1):
            if re.search(pattern, line):
                yield f"{path}:{number}: {line.strip()}"


def mpi_only_in_distributed(source):
    allowed = ("src/distributed/", "include/kozero/distributed/", "tests/")
    yield from lines_matching(source, r"MPI_|nccl[A-Z]|<mpi\.h>|<nccl\.h>", allowed)


def stage_only_where_named(source):
    # train/settings.cpp reads the deck's key and hands it to zero. Four files of run name stages in the banner and in
    # refusals; program has `bench stages` and help texts.
    allowed = ("src/zero/", "include/kozero/zero/", "src/plan/", "include/kozero/plan/", "src/run/run_log.cpp",
               "src/run/closing_sample.cpp", "src/run/engine_on_ranks.cpp", "src/run/start_checks.cpp", "src/program/command.cpp",
               "src/program/option_parser.cpp", "src/commands/", "include/kozero/commands/", "src/report/", "src/bench/", "io/deck/",
               "src/train/settings.cpp", "tests/")
    yield from lines_matching(source, r"(?i:(?<![a-z])stages?(?![a-z]))|Stage(?![a-z])", allowed)


def no_libm(source):
    # The C library's functions differ between processors in the last bit; core/portable_math.hpp replaces them. Displayed
    # perplexities and limits of links are excepted, and vector_math.hpp's exp2 of a GPU. (A member function may be named log.)
    names = "exp2?|exp10|expm1|log(?:2|10|1p)?|pow|a?(?:sin|cos|tan)h?|atan2|erfc?|[lt]gamma|cbrt|hypot"
    calls = rf"(?:std|Kokkos)::(?:{names})[fl]?\b|(?<![\w.:>~])(?!log\()(?:{names})[fl]?\("
    allowed = ("src/run/evaluation_text.cpp", "src/commands/eval.cpp", "src/report/analysis.cpp",
               "kernels/launch/vector_math.hpp", "tests/")
    yield from lines_matching(source, rf"^(?:(?!//).)*?(?:{calls})", allowed)


def spdx_lines(source):
    wanted = ("SPDX-License-Identifier: Apache-2.0", "SPDX-FileCopyrightText: The KoZeRO authors")
    for path in files(source, *CODE, *SCRIPTS):
        head = (source / path).read_text().splitlines()[:4]
        for line in wanted:
            if not any(row in (f"// {line}", f"# {line}") for row in head):
                yield f"{path}: does not open with '{line}'"


def file_length(source):
    for path in files(source, *CODE, *SCRIPTS):
        count = len((source / path).read_text().splitlines())
        if count > 450:
            yield f"{path}: {count} lines; split it at 450"


def ascii_only(source):
    for path in files(source, *CODE, *SCRIPTS):
        for number, line in enumerate((source / path).read_bytes().splitlines(), 1):
            if not line.isascii():
                yield f"{path}:{number}: not ASCII: {line.decode(errors='replace').strip()}"


def include_paths(source):
    yield from lines_matching(source, r'#include\s*"(\.\./|kozero/|.*/\.\./)', ())
    for path in files(source, ".hpp"):
        if "#pragma once" not in (source / path).read_text().splitlines():
            yield f"{path}: no #pragma once"


def file_names(source):
    for path in files(source, *CODE, *SCRIPTS):
        if re.search(r"(^|_)(utils?|helpers?|managers?|common|impl|new|v\d+)(_|$)", path.stem):
            yield f"{path}: the name says nothing"
        if path.name != "CMakeLists.txt" and path.suffix != ".cmake" and path.stem != path.stem.lower():
            yield f"{path}: file names are snake_case"


def parse(source):
    presets = json.loads((source / "CMakePresets.json").read_text())
    names = {preset["name"] for preset in presets["configurePresets"]}
    for name in ("release", "debug", "asan", "cuda"):
        if name not in names:
            yield f"CMakePresets.json: no preset {name}"
    specs = spack_specs((source / "spack.yaml").read_text())
    for part in ("kokkos", "mpi", "hdf5", "onednn", "catch2", "fmt"):
        if not any(re.match(rf"{part}\b", spec) for spec in specs):
            yield f"spack.yaml: no spec {part}"


def spack_specs(text):
    """spack: specs: of an environment, by PyYAML if it is installed, else by its lines (a list of one-line strings)."""
    try:
        import yaml
        return yaml.safe_load(text)["spack"]["specs"]
    except ImportError:
        rows = [row for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#")]
        assert rows[0] == "spack:" and not any("\t" in row for row in rows)
        return [row.split("- ", 1)[1].strip("'\"") for row in rows if row.startswith("  - ") or row.startswith("    - ")]


def anonymous_namespaces(source):
    for path in files(source, ".cpp"):
        if path.parts[0] == "tests":
            continue
        text = (source / path).read_text()
        count = len(re.findall(r"^namespace \{$", text, re.MULTILINE))
        if count > max(1, len(re.findall(r"^namespace kozero\S* \{$", text, re.MULTILINE))):
            yield f"{path}: {count} anonymous namespaces; one is enough"


def opening_sentence(source):
    for path in files(source, *CODE):
        if not (source / path).read_text().splitlines()[2].startswith(f"// {path.name}: "):
            yield f"{path}: its third line is not '// {path.name}: ' and what it is"


def free_paragraphs(source):
    """Comments of headers below the opening of a namespace that no declaration follows: they belong into the opening
    comment, or before the declaration that they describe."""
    for path in files(source, ".hpp"):
        lines = [line.strip() for line in (source / path).read_text().splitlines()]
        begin = next((i for i, line in enumerate(lines) if line.startswith("namespace ")), len(lines))
        for i in range(begin, len(lines) - 1):
            if lines[i].startswith("//") and (not lines[i + 1] or lines[i + 1].startswith("}")):
                yield f"{path}:{i + 1}: a comment before no declaration: {lines[i]}"


def formatted(source):
    """As clang-format 14 writes them: other versions differ in a few places."""
    paths = [str(path) for path in files(source, *CODE, ".cu")]
    run = subprocess.run(["clang-format-14", "--dry-run", *paths], cwd=source, capture_output=True, text=True)
    places = re.findall(r"^(\S+:\d+):\d+: (?:warning|error)", run.stderr, re.MULTILINE)
    yield from (f"{place}: not as clang-format 14 writes it; clang-format-14 -i FILE" for place in places)
    if run.returncode != 0 and not places:
        yield run.stderr.strip()


RULES = (mpi_only_in_distributed, stage_only_where_named, no_libm, spdx_lines, file_length, ascii_only, include_paths,
         file_names, parse, anonymous_namespaces, opening_sentence, free_paragraphs, formatted)


def main():
    rule = {rule.__name__: rule for rule in RULES}[sys.argv[1]]
    wrong = list(rule(pathlib.Path(sys.argv[2])))
    print("\n".join(wrong) if wrong else f"{rule.__name__}: nothing to say")
    return 1 if wrong else 0


sys.exit(main())
