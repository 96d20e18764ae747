# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# check_documents.py SOURCE: what the documents name exists: files and anchors of links, files, decks of inputs/, tests,
# labels, targets, deck keys, tables of tests/bench/tables.sh (a page mentions each); each block of commands has a mark
# (run_documents.py reads it); and measured rates and times have a date and a processor.

import pathlib
import re
import sys

SECTIONS = "run|model|data|train|optim|zero|comm|checkpoint|log"
FOLDERS = r"(?:src|include|kernels|io|tests|cmake|docs|inputs|\.ci)"
FILES_OF_RUNS = ("txt", "toml", "json", "jsonl", "cpp", "hpp", "csv", "safetensors")  # behind a dot, as a key's name is
MARK = re.compile(r"<!-- (run|run: long|needs: [^>]+) -->$")
RATE = r"(?:tokens|[kMGT]i?B|[GT]FLOP)/s"
FIGURE = re.compile(rf"[\d.,]*\d (?:{RATE}|times\b)")
TABLE_OF_FIGURES = re.compile(rf"\|.*(?:{RATE}|\bms\b|\bseconds\b)")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
PROCESSOR = re.compile(r"\bZen \d|\bXeon\b|processor was not\s+recorded")
COMMAND = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\./kozero\.sh|kozero|mpiexec|srun|sbatch|scancel|squeue|ctest|cmake|ninja|git|python3|tail|cat|"
    r"head|h5ls|h5dump|h5py|mkdir|echo|export|source|spack|timeout|rm|curl|/usr/bin/time|(?:tests|build|PREFIX)/\S+)(?=\s|$)|#!/bin")


def pages_of(source):
    return [source / "README.md", source / "src/README.md", *sorted(source.glob("docs/*.md"))]


def anchors(page):
    """GitHub's anchors of a page's headings, and the page's own (<a id="...">)."""
    text = page.read_text()
    yield from re.findall(r'<a id="([^"]+)"', text)
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^    .*$", "", text, flags=re.M), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def broken_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / path if path else page
        if not file.exists():
            yield f"the link {target} leads to no file"
        elif anchor and anchor not in anchors(file):
            yield f"the link {target} names no heading of {file.name}"


def unknown_decks(source, text):
    for deck in re.findall(r"\b(?:inputs|tests/bench)/[\w/]+\.toml\b", text):
        if not (source / deck).exists():
            yield f"{deck} does not exist"


def unknown_files(source, names, text):
    """Paths and names of sources in backticks. What holds * or a word of capitals, such as NAME, stands for several."""
    for word in set(re.findall(r"`([\w./*-]+)`", text)):
        stands_for_several = "*" in word or re.search(r"(?:^|[/_])[A-Z]+(?:$|[._])", word) and not word.endswith(".md")
        if stands_for_several or word.endswith(".toml") or not re.search(r"[a-z]", word):
            continue
        if re.match(rf"{FOLDERS}/", word):
            if not (source / word).exists():
                yield f"there is no {word}"
        elif re.search(r"\w\.(?:cpp|hpp|cu|sh|py)$", word) and pathlib.Path(word).name not in names:
            yield f"there is no file {word}"


def known_tests(source, cmake):
    """Tests and targets that CMakeLists.txt name, files of tests, and kozero_test(test_<prefix>${name}) of each
    file."""
    files = {file.stem for file in source.glob("tests/**/test_*.*")}
    prefixes = set(re.findall(r"\btest_(\w+_)\$\{", cmake))
    return files | set(re.findall(r"\btest_\w+", cmake)) | {
        name.replace("test_", "test_" + prefix, 1) for name in files for prefix in prefixes}


def cases_of_tests(cmake):
    """{test: its cases}: kozero_add_ctest(TEST.CASE), or TEST.${x} in a foreach(x ...) or in a function of x."""
    cases = {}

    def add(test, names):
        cases.setdefault(test, set()).update(names)

    loops = re.findall(r"foreach\(\w+ ([^)]*)\)(.*?)endforeach", cmake, re.DOTALL)
    for names, body in loops:
        for test in re.findall(r"kozero_add_ctest\((\w+)\.\$\{", body):
            add(test, names.split())
    for function, body in re.findall(r"function\((\w+)[^)]*\)(.*?)endfunction", cmake, re.DOTALL):
        in_loops = [(names, call) for names, inner in loops for call in re.findall(rf"\b{function}\(([^)]*)", inner)]
        for test in re.findall(r"kozero_add_ctest\(([\w${}]+)\.\$\{", body):
            for names, call in in_loops:
                add(call.split()[0] if test.startswith("$") else test, names.split())
            if not test.startswith("$"):
                add(test, re.findall(rf"\b{function}\((\w+)[ )]", cmake))
    for test, case in re.findall(r"kozero_add_ctest\((\w+)\.(\w+)", cmake):
        add(test, [case])
    return cases


def unknown_cases(cases, text):
    for test, case in set(re.findall(r"\b([a-z_]+)\.([a-z][a-z0-9_]*[a-z0-9])\b(?![./])", text)):
        if test in cases and case not in cases[test] | {"py", "sh", "cpp", "hpp"}:
            yield f"the test {test} has no case {case}"


def unknown_labels(cmake, text):
    labels = set(re.findall(r"\w+", " ".join(re.findall(r"LABELS +(.*)", cmake))))
    for given in set(re.findall(r"(?:test|ctest)\b.* -L '?([\w|]+)", text)):
        for label in set(given.split("|")) - labels:
            yield f"there is no label {label}"


def unknown_targets(cmake, text):
    targets = set(re.findall(r"(?:add_custom_target|add_executable|kozero_executable)\((\w+)", cmake))
    for target in set(re.findall(r"(?:--target|ninja -C \S+) ([a-z]\w+)", text)) - targets:
        yield f"there is no target {target}"


def unknown_tests(tests, text):
    for name in set(re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b(?!\.(?:py|sh))", text)):
        if name not in tests:
            yield f"there is no test {name}"


def unknown_keys(keys, text):
    for key in set(re.findall(rf"(?<![\w./-])((?:{SECTIONS})\.[a-z][a-z0-9_]*[a-z0-9])(?=[`=\s,]| = )(?!\()", text)):
        if key not in keys and key.split(".")[1] not in FILES_OF_RUNS:
            yield f"the deck has no key {key}"


def stale_excerpts(code, text):
    """Lines of C++ in the page that are in no source; `...` in an excerpt stands for omitted code."""
    for excerpt in re.findall(r"```cpp\n(.*?)```", text, re.DOTALL):
        for line in excerpt.splitlines():
            parts = (re.sub(r"\s", "", part) for part in line.split("..."))
            if not all(part in code for part in parts):
                yield f"no source has the line {line.strip()}"


def blocks(text):
    """(line, mark or "", lines) of each run of indented lines behind a blank line. A mark is the line before that one."""
    rows = text.splitlines()
    number = 0
    while number < len(rows):
        if not rows[number].startswith("    ") or (number > 0 and rows[number - 1].strip()):
            number += 1
            continue
        first = number
        while number < len(rows) and rows[number].startswith("    "):
            number += 1
        mark = MARK.match(rows[first - 2]) if first >= 2 else None
        yield first + 1, mark.group(1) if mark else "", [row[4:] for row in rows[first:number]]


def unmarked_commands(text):
    for line, mark, rows in blocks(text):
        if not mark and any(COMMAND.match(row) for row in rows):
            yield f"line {line}: a block of commands without a mark (docs/CONTRIBUTING.md): {rows[0]}"
        elif mark and not any(COMMAND.match(row) for row in rows):
            yield f"line {line}: a mark, but no command: {rows[0]}"
    marks = sum(1 for row in text.splitlines() if MARK.match(row))
    if marks != sum(1 for _, mark, _ in blocks(text) if mark):
        yield "a mark stands before no block"


def figures_without_conditions(text):
    """Rates and ratios in a section, and tables of rates or times, without date and processor. A table's are in the
    table, or in the text between it and the next table or heading, above or below."""

    def has_none(part):
        return not (DATE.search(part) and PROCESSOR.search(part))

    prose = re.sub(r"^    [^\n]*|^```.*?^```", "", text, flags=re.M | re.S)
    for section in re.split(r"^#+ ", prose, flags=re.M):
        title = section.partition("\n")[0]
        figure = FIGURE.search(section)
        if figure and has_none(section):
            yield f"{title}: {figure.group(0)}: a figure needs a date and a processor"
        parts = re.split(r"((?:^\|.*\n)+)", section, flags=re.M)  # text, table, text, table, ...
        for number in range(1, len(parts), 2):
            if TABLE_OF_FIGURES.match(parts[number]) and has_none("".join(parts[number - 1:number + 2])):
                yield f"{title}: a table of measurements needs a date and a processor: {parts[number].splitlines()[0]}"


def tables_and_pages(source, pages):
    """tests/bench/tables.sh has a function for each table of its list, and pages mention each of them, and no other."""
    script = (source / "tests/bench/tables.sh").read_text()
    names = set(re.findall(r"^(\w+) +(?:none|peers|root|cuda) ", script, re.M))
    mentioned = {name for page in pages for name in re.findall(r"tests/bench/tables\.sh ([a-z_]+)", page.read_text())}
    for name in sorted(names):
        if f"\n{name}() {{" not in script:
            yield f"tests/bench/tables.sh has no function {name}"
    for name in sorted(names - mentioned):
        yield f"tests/bench/tables.sh {name}: no page mentions it beside its table"
    for name in sorted(mentioned - names):
        yield f"a page mentions tests/bench/tables.sh {name}, which is not there"


def main():
    source = pathlib.Path(sys.argv[1])
    cmake = "\n".join(file.read_text() for file in [source / "CMakeLists.txt", *source.glob("tests/**/CMakeLists.txt"),
                                                    *source.glob("cmake/*.cmake")])
    tests = known_tests(source, cmake)
    cases = cases_of_tests(cmake)
    keys = set(re.findall(rf'"((?:{SECTIONS})\.\w+)"', (source / "io/deck/schema.cpp").read_text()))
    names = {file.name for top in ("src", "include", "kernels", "io", "tests", "cmake") for file in (source / top).rglob("*")}
    names |= {"kozero.sh"}
    sources = [file for top in ("src", "include", "kernels", "io") for file in sorted((source / top).rglob("*.[ch]pp"))]
    code = "\n".join(re.sub(r"\s", "", file.read_text()) for file in sources)
    pages = pages_of(source)
    wrong = list(tables_and_pages(source, pages))
    for page in pages:
        text = page.read_text()
        for found in (broken_links(page, text), unknown_decks(source, text), unknown_files(source, names, text),
                      unknown_tests(tests, text), unknown_cases(cases, text), unknown_labels(cmake, text),
                      unknown_targets(cmake, text), unknown_keys(keys, text), stale_excerpts(code, text),
                      unmarked_commands(text), figures_without_conditions(text)):
            wrong += [f"{page.relative_to(source)}: {line}" for line in found]
    print("\n".join(wrong) if wrong else f"documents: {len(keys)} keys known, nothing to say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
