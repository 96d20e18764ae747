# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""mutants.py BUILD [--every K] [--rotate N [--seed S]] [NAME ...]: breaks the protocol in known places, one at a time,
and reports whether protocol_threads notices. mutants.py --check: only checks that the text of every mutant occurs
exactly once in its file. Needs no build.

Each mutant is one edit of one source or header. The edited source is compiled and linked with the other objects of the
build folder BUILD, and the test runs every K-th case with it. --rotate runs N of the mutants: those that follow from
the seed S (default: the hours since 1970), so that later runs take other ones. Exit status 0: the test noticed every
mutant, by a race or by a wrong number.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

SHM, MPI = "src/distributed/host/shm_communicator.cpp", "src/distributed/host/mpi_communicator.cpp"
COUNTER = "src/distributed/host/shared_arrays.hpp"
# The wait in Gradients::add_lookups is not a mutant. Without it nothing changes in this test, since its back ends read
# peers' addends and never their sums.
# name, file, text, replacement, sources to compile (a .cpp file: itself)
MUTANTS = [
    ("publish without release", COUNTER, "phase_.store(phase);", "phase_.store(phase, std::memory_order_relaxed);", [SHM]),
    ("await without acquire", COUNTER, "phase_.load(std::memory_order_acquire) >= phase",
     "phase_.load(std::memory_order_relaxed) >= phase", [SHM]),
    ("peers' addends are read before they are posted", SHM, "await(posting(r, ticket).posted, ticket + 1, operation.name(), r);", "", []),
    ("a posting is published before its location", SHM, "posting(rank(), ticket).location = mine.location;\n      posting(rank(), ticket).posted.publish(ticket + 1);",
     "posting(rank(), ticket).posted.publish(ticket + 1);\n      posting(rank(), ticket).location = mine.location;", []),
    ("nobody waits until the peers have read", SHM, "if (operation.direct()) await_read(operation.name(), pending.ticket);", "", []),
    ("said to be read before it is", SHM, "    const bool reduces = operation.collective == Collective::reduce_scatter;\n    if (operation.direct()) {",
     "    const bool reduces = operation.collective == Collective::reduce_scatter;\n"
     "    posting(rank(), pending.ticket).read.publish(pending.ticket + 1);\n    if (operation.direct()) {", []),
    ("a posting is used again too early", SHM, "if (ticket >= operations_.size()) await_read(mine.name(), ticket - operations_.size());", "", []),
    ("one window buffer in place of two", SHM, "static_cast<std::int64_t>(phase_ % 2) * buffer_bytes_", "static_cast<std::int64_t>(phase_ % 1) * buffer_bytes_", []),
    ("windows are read before they are filled", SHM, "await(board(r).published, phase_ + 1, collective, r);", "", []),
    ("a gather of messages is not waited for", MPI, "wait_for(gathers_[pending.ticket % gathers_.size()], \"all_gather\");", "", []),
    ("a gather that was given up frees what is written later", "src/distributed/group_communicator.hpp",
     "if (!is_done_) keep_for_ever(value_);", "", ["src/distributed/group_communicator.cpp"]),
    ("both chunks are received into one buffer", MPI, "return received_[k % 2].data()", "return received_[0].data()", []),
    ("a gathered unit is used before it is there", "src/zero/gathered_units.cpp", "  buffer(unit).gather.wait();\n  if (arrives)", "  if (arrives)", []),
    ("weights change while peers read them", "src/zero/gathered_units.cpp", "for (auto& buffer : buffers_) buffer.gather.wait_until_reusable();", "", []),
    ("the last reduction is not waited for", "src/zero/gradients.cpp",
     "  if (under_way_ >= 0) wait_for_reduction(under_way_);\n  add_lookups();", "  add_lookups();", []),
    ("an addend is overwritten while peers read it", "src/zero/gradients.cpp", "reductions_[at(unit)].wait_until_reusable();", "", []),
    ("idle ranks' addends are added", "src/zero/gradients.cpp", ".ranks = ordered || first ? micro_step_.ranks : 0", ".ranks = 0", []),
    ("the first micro-step is added to what the shard held", "src/zero/gradients.cpp", ".onto = ordered && !first", ".onto = ordered && micro_step_.count > 1", []),
    ("shared weights are not taken back", "src/distributed/distributed_array.cpp", "for (auto& transfer : started) transfer.wait_until_reusable();", "", []),
]


ROOT = pathlib.Path(__file__).resolve().parents[2]


def stale_mutants():
    """A line for each mutant whose text does not occur exactly once in its file: it would change nothing or too
    much."""
    for name, file, text, _, _ in MUTANTS:
        count = (ROOT / file).read_text().count(text)
        if count != 1:
            yield f"mutants.py: '{name}': its text occurs {count} times in {file}, not once; edit MUTANTS to match the source:\n{text}"


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        mine = [one for one in commands if "protocol_threads.dir" in one["command"]]
        self.commands = {str(pathlib.Path(one["file"]).resolve().relative_to(ROOT)): one for one in mine}
        self.objects = {name: self.object_of(one) for name, one in self.commands.items()}
        link = subprocess.run(["ninja", "-C", str(self.folder), "-t", "commands", "protocol_threads"], capture_output=True,
                              text=True, check=True).stdout.splitlines()[-1]
        self.link = link.removeprefix(": && ").removesuffix(" && :")

    @staticmethod
    def object_of(command):
        words = shlex.split(command["command"])
        return words[words.index("-o") + 1]

    def compile(self, source, text, overlay, to):
        words = shlex.split(self.commands[source]["command"])
        words = words[next(i for i, word in enumerate(words) if word.endswith(("c++", "g++", "clang++"))):]
        words[words.index("-o") + 1] = str(to)
        words[words.index("-c") + 1:] = [str(text)]
        words[1:1] = [f"-I{overlay}", f"-I{(ROOT / source).parent}"]
        subprocess.run(words, cwd=self.folder, check=True)

    def program_of(self, mutant, folder):
        _, file, text, instead, sources = mutant
        changed = (ROOT / file).read_text().replace(text, instead)
        link = shlex.split(self.link)
        if file.endswith(".cpp"):
            (folder / "source.cpp").write_text(changed)
            sources = {file: folder / "source.cpp"}
        else:  # a header: found in the overlay, by its path from the root or from include/
            header = folder / file.removeprefix("include/")
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(changed)
            sources = {source: ROOT / source for source in sources}
        for number, (source, path) in enumerate(sources.items()):
            to = folder / f"{number}.o"
            self.compile(source, path, folder, to)
            link[link.index(self.objects[source])] = str(to)
        link[link.index("-o") + 1] = str(folder / "mutant")
        subprocess.run(link, cwd=self.folder, check=True)
        return folder / "mutant"


def outcome(program, every):
    """How the test ended with the mutant."""
    command = ["env", "OMP_NUM_THREADS=1", "OMP_PROC_BIND=false", "TSAN_OPTIONS=halt_on_error=1", program, "--every", str(every)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "noticed: it never ended"
    if "ThreadSanitizer" in done.stderr:
        return "noticed: " + next(line for line in done.stderr.splitlines() if line.startswith("SUMMARY"))[:110]
    if done.returncode != 0:
        wrong = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return f"noticed: {wrong[0][:110] if wrong else f'status {done.returncode}'}"
    return "NOT noticed"


def chosen(options):
    """The mutants to run, in order."""
    if options.rotate == 0:
        return [mutant for mutant in MUTANTS if not options.names or mutant[0] in options.names]
    first = options.seed * options.rotate
    print(f"mutants of seed {options.seed}, {options.rotate} of {len(MUTANTS)} (--rotate {options.rotate} --seed {options.seed}):")
    return [MUTANTS[(first + i) % len(MUTANTS)] for i in range(options.rotate)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--every", type=int, default=37)
    parser.add_argument("--rotate", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 3600)
    options = parser.parse_args()
    stale = list(stale_mutants())
    if stale:
        sys.exit("\n".join(stale))
    if options.check:
        print(f"the texts of all {len(MUTANTS)} mutants occur once")
        return
    if options.build is None:
        parser.error("give the build folder, such as build/release, or --check")
    build, mutants, missed = Build(options.build), chosen(options), 0
    for mutant in mutants:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            said = outcome(build.program_of(mutant, pathlib.Path(folder)), options.every)
        missed += said.startswith("NOT")
        print(f"{mutant[0]}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{missed} of {len(mutants)} were not noticed" if missed else f"all {len(mutants)} were noticed")
    sys.exit(missed > 0)


main()
