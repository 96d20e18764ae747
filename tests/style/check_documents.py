# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# check_documents.py SOURCE: what the documents name exists: files and anchors of links, decks of inputs/, tests, deck keys,
# tables of tests/bench/tables.sh, each of which a page mentions.

import pathlib
import re
import sys

SECTIONS = "run|model|data|train|optim|zero|comm|checkpoint|log"


def anchors(page):
    """GitHub's anchors of a page's headings."""
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^    .*$", "", page.read_text(), flags=re.M), re.M):
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
    for deck in re.findall(r"\b(?:inputs|tests/bench)/\w+\.toml\b", text):
        if not (source / deck).exists():
            yield f"{deck} does not exist"


def known_tests(source, cmake):
    """Tests and targets that CMakeLists.txt name, files of tests, and kozero_test(test_<prefix>${name}) of each file."""
    files = {file.stem for file in source.glob("tests/**/test_*.*")}
    prefixes = set(re.findall(r"\btest_(\w+_)\$\{", cmake))
    return files | set(re.findall(r"\btest_\w+", cmake)) | {
        name.replace("test_", "test_" + prefix, 1) for name in files for prefix in prefixes}


def unknown_labels(cmake, text):
    labels = set(re.findall(r"\w+", " ".join(re.findall(r"LABELS +(.*)", cmake))))
    for label in set(re.findall(r"(?:test|ctest).* -L (\w+)", text)) - labels:
        yield f"there is no label {label}"


def unknown_tests(tests, text):
    for name in set(re.findall(r"\btest_[a-z0-9_]*[a-z0-9]\b(?!\.(?:py|sh))", text)):
        if name not in tests:
            yield f"there is no test {name}"


def unknown_keys(keys, text):
    for key in set(re.findall(rf"(?<![\w./-])((?:{SECTIONS})\.[a-z][a-z0-9_]*[a-z0-9])(?=[`=\s,]| = )(?!\()", text)):
        if key not in keys and key.split(".")[1] not in ("txt", "toml", "json", "cpp", "hpp", "csv"):
            yield f"the deck has no key {key}"


def stale_excerpts(code, text):
    """Lines of C++ in the page that stand in no source; an excerpt leaves out what `...` stands for."""
    for excerpt in re.findall(r"```cpp\n(.*?)```", text, re.DOTALL):
        for line in excerpt.splitlines():
            parts = (re.sub(r"\s", "", part) for part in line.split("..."))
            if not all(part in code for part in parts):
                yield f"no source has the line {line.strip()}"


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
    cmake = "\n".join(file.read_text() for file in [*source.glob("tests/**/CMakeLists.txt"), *source.glob("cmake/*.cmake")])
    tests = known_tests(source, cmake)
    keys = set(re.findall(rf'"((?:{SECTIONS})\.\w+)"', (source / "io/deck/schema.cpp").read_text()))
    sources = [file for top in ("src", "include", "kernels", "io") for file in sorted((source / top).rglob("*.[ch]pp"))]
    code = "\n".join(re.sub(r"\s", "", file.read_text()) for file in sources)
    pages = [source / "README.md", source / "src/README.md", *sorted(source.glob("docs/*.md"))]
    wrong = list(tables_and_pages(source, pages))
    for page in pages:
        text = page.read_text()
        for found in (broken_links(page, text), unknown_decks(source, text), unknown_tests(tests, text),
                      unknown_labels(cmake, text), unknown_keys(keys, text), stale_excerpts(code, text)):
            wrong += [f"{page.relative_to(source)}: {line}" for line in found]
    print("\n".join(wrong) if wrong else f"documents: {len(keys)} keys known, nothing to say")
    return 1 if wrong else 0


sys.exit(main())
