# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
"""mutants.py BUILD [--every K] [NAME ...]: breaks the protocol in known places and says whether protocol_threads notices.

Each mutant is one edit of one source or header: it is compiled beside the others' objects of the build folder BUILD, and
the test runs every K-th case with it. Exit status 0: every mutant was noticed, by a race or by a wrong number.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

SHM, MPI = "src/dist/shm_communicator.cpp", "src/dist/mpi_communicator.cpp"
COUNTER = "src/dist/shared_arrays.hpp"
# name, file, text, what it becomes, sources to compile (the file itself where it is one)
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
    ("a gather that was given up frees what is written later", "src/dist/group_communicator.hpp",
     "if (!is_done_) keep_for_ever(value_);", "", ["src/dist/group_communicator.cpp"]),
    ("both chunks are received into one buffer", MPI, "return received_[k % 2].data()", "return received_[0].data()", []),
    ("a gathered unit is used before it is there", "src/zero/gathered_units.cpp", "  buffer(unit).gather.wait();\n  buffer(unit).held = true;", "  buffer(unit).held = true;", []),
    ("weights change while peers read them", "src/zero/gathered_units.cpp", "for (auto& buffer : buffers_) buffer.gather.wait_until_reusable();", "", []),
    ("lookups are added while peers read the sum", "src/zero/gradients.cpp", "      wait_until_reusable(each);\n", "", []),
    ("an addend is overwritten while peers read it", "src/zero/gradients.cpp", "reductions_[at(unit)].wait_until_reusable();", "", []),
    ("idle ranks' addends are added", "src/zero/gradients.cpp", ".ranks = ordered || first ? micro_step_.ranks : 0", ".ranks = 0", []),
    ("the first micro-step is added to what the shard held", "src/zero/gradients.cpp", ".onto = ordered && !first", ".onto = ordered && micro_step_.count > 1", []),
    ("shared weights are not taken back", "src/zero/weights.cpp", "for (auto& transfer : started) transfer.wait_until_reusable();", "", []),
]


class Build:
    def __init__(self, folder):
        self.root = pathlib.Path(__file__).resolve().parents[2]
        self.folder = pathlib.Path(folder).resolve()
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        mine = [one for one in commands if "protocol_threads.dir" in one["command"]]
        self.commands = {str(pathlib.Path(one["file"]).resolve().relative_to(self.root)): one for one in mine}
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
        words[1:1] = [f"-I{overlay}", f"-I{(self.root / source).parent}"]
        subprocess.run(words, cwd=self.folder, check=True)

    def program_of(self, mutant, folder):
        name, file, text, instead, sources = mutant
        original = (self.root / file).read_text()
        if text not in original:
            sys.exit(f"{name}: {file} has no '{text}' any more")
        changed = original.replace(text, instead)
        link = shlex.split(self.link)
        if file.endswith(".cpp"):
            (folder / "source.cpp").write_text(changed)
            sources = {file: folder / "source.cpp"}
        else:  # found in the overlay, by its path from the root or from include/
            header = folder / file.removeprefix("include/")
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(changed)
            sources = {source: self.root / source for source in sources}
        for number, (source, path) in enumerate(sources.items()):
            to = folder / f"{number}.o"
            self.compile(source, path, folder, to)
            link[link.index(self.objects[source])] = str(to)
        link[link.index("-o") + 1] = str(folder / "mutant")
        subprocess.run(link, cwd=self.folder, check=True)
        return folder / "mutant"


def outcome(program, every):
    """What the test said of it."""
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=37)
    options = parser.parse_args()
    build = Build(options.build)
    missed = 0
    for mutant in MUTANTS:
        if options.names and mutant[0] not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            said = outcome(build.program_of(mutant, pathlib.Path(folder)), options.every)
        missed += said.startswith("NOT")
        print(f"{mutant[0]}: {said}", flush=True)
    print(f"{missed} of {len(MUTANTS)} were not noticed" if missed else "every one was noticed")
    sys.exit(missed > 0)


main()
