# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""cli_cases.py: what test_metrics.py and test_timeline.py share: commands that are run in a folder, and their results.

    TEST KOZERO MPIEXEC DECK [--WITH]      WITH: a package of the Python that runs the test, to compare with
"""
import argparse
import pathlib
import subprocess
import tempfile


class Cases:
    """Commands in `folder`, and the number of unexpected results."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.wrong = 0

    def expect(self, right, text):
        if not right:
            self.wrong += 1
            print("FAILED:", text)

    def kozero(self, *arguments, ranks=1, status=0):
        """Runs the program; another status than `status` is unexpected. Returns the two outputs."""
        launcher = [*self.options.mpiexec.split(), "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, self.options.kozero, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        self.expect(done.returncode == status, f"{arguments}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done.stdout, done.stderr


def main(document, package, make_cases, usual, with_package):
    """Runs the functions `usual`, or with the option --PACKAGE `with_package`. Returns the exit status."""
    parser = argparse.ArgumentParser(description=document)
    for name in ("kozero", "mpiexec", "deck"):
        parser.add_argument(name)
    parser.add_argument(f"--{package}", action="store_true", dest="with_package")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(options, pathlib.Path(folder))
        for case in with_package if options.with_package else usual:
            case(cases)
    print("all as expected" if cases.wrong == 0 else f"{cases.wrong} were not as expected")
    return int(cases.wrong > 0)
