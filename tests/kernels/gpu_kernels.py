#!/usr/bin/env python3
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""Registers of a thread and bytes of static shared memory of a block, for each GPU kernel of the programs.

  gpu_kernels.py build/cuda/kozero-cuda build/cuda/kozero-bench-cuda           compare with gpu_kernels.txt; status 1 if
                                                                               they differ
  gpu_kernels.py build/cuda/kozero-cuda build/cuda/kozero-bench-cuda --write   write gpu_kernels.txt anew

It is always an error that a kernel spills, has a stack, or is launched through constant memory: the host then copies
its arguments before each launch and waits for the previous launch. So is a KOKKOS_LAMBDA in a function template that
the linker merges: the function that copies the lambda is local to each object file, so another file's copy of the
template calls a null pointer. Such templates must be static. A GPU allocates registers in steps of 8 per thread and
shared memory in steps of 128 bytes per block, so only another number of steps is a difference, and it is an error only
with the table's compiler and architecture. Needs c++filt, nm and cuobjdump (of the toolkit, or from
cmake/install_nvidia_wheels.sh).
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "gpu_kernels.txt"
REGISTER_STEP, SHARED_STEP = 8, 128
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def output(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"gpu_kernels.py: {command[0]}: {done.stderr.strip()}")
    return done.stdout


def tool(name):
    prefix = output(HERE.parents[1] / "cmake" / "install_nvidia_wheels.sh", "--print-prefix").strip()
    for folder in (None, "/usr/local/cuda/bin", f"{prefix}/bin"):
        found = shutil.which(name, path=folder)
        if found:
            return found
    sys.exit(f"gpu_kernels.py: {name} is not here: cmake/install_nvidia_wheels.sh fetches it")


def balanced(text, begin):
    """The index after the bracket that closes the one at text[begin]."""
    depth = 0
    for end in range(begin, len(text)):
        depth += (text[end] in "<({[") - (text[end] in ">)}]")
        if depth == 0:
            return end + 1
    return len(text)


def short_name(signature):
    """"ElementUpdate<Bfloat16, 3, adamw_update<Bfloat16>::{lambda#1}>": the functor that Kokkos launches, without the
    arguments of functions and what all names have in common."""
    signature = re.sub(r"_INTERNAL_\w+::|\(anonymous namespace\)::", "", signature)  # different in each build
    begin = signature.find("<", signature.find("Kokkos::Impl::Parallel"))
    functor = signature[begin + 1 : balanced(signature, begin) - 1]
    while (begin := functor.find("(")) >= 0:
        functor = functor[:begin] + functor[balanced(functor, begin) :]
    functor = re.sub(r", Kokkos::(Range|Team|MDRange)Policy<.*", "", functor)
    functor = re.sub(r"(kozero::|kernels::|Kokkos::)", "", functor)
    return re.sub(r"(?<=<)Cuda(, )?|, Cuda\b", "", functor).replace("<>", "").replace("> >", ">>").strip()


def kernels_of(programs):
    """{name: [(registers, shared bytes)] of the kernels of that name}, the forbidden ones, the architectures."""
    listing, usages = "", []
    for program in programs:
        of_program = output(tool("cuobjdump"), "-res-usage", program)
        found = [usage for usage in USAGE.findall(of_program) if "kozero" in usage[0]]
        if not found:
            sys.exit(f"gpu_kernels.py: {program} has no kernel of KoZeRO's")
        listing += of_program
        usages += [usage for usage in found if usage not in usages]
    signatures = output("c++filt", input="\n".join(usage[0] for usage in usages)).splitlines()
    kernels, forbidden = collections.defaultdict(set), []
    for (_, *numbers), signature in zip(usages, signatures):
        registers, stack, shared, local = map(int, numbers)
        name = short_name(signature)
        kernels[name].add((registers, shared))
        if local or stack:
            forbidden.append(f"{name}: a stack of {stack} bytes, {local} bytes spilled")
        if "constant_memory" in signature:
            forbidden.append(f"{name}: launched through constant memory")
    architectures = ",".join(sorted(set(re.findall(r"sm_\d+", listing))))
    return {name: sorted(uses) for name, uses in kernels.items()}, forbidden, architectures


def merged_lambdas(program):
    """Functions with a KOKKOS_LAMBDA of which the linker keeps one copy for all object files."""
    merged = [line for line in output("nm", "-C", program).splitlines()
              if re.match(r"\S* [WVu] .*__nv_hdl_wrapper_t", line) and "(anonymous namespace)" not in line]
    functions = {name for line in merged for name in re.findall(r"&\((?:void|bool|auto) (kozero::[\w:]+)", line)}
    return [f"{name}: make this function static; its KOKKOS_LAMBDA is merged" for name in sorted(functions)] or (
        [f"a KOKKOS_LAMBDA is merged: {merged[0]}"] if merged else [])


def compiler_of(program):
    """The version of the nvcc that the program's build folder is configured for."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for folder in pathlib.Path(program).resolve().parents:
        cache = folder / "CMakeCache.txt"
        found = cache.exists() and re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.+)$", cache.read_text(), re.M)
        if found:
            nvcc = found[1]
            break
    return re.search(r"release ([0-9.]+)", output(nvcc, "--version"))[1]


def differences(here, committed):
    steps = lambda uses: {(-(-registers // REGISTER_STEP), -(-shared // SHARED_STEP)) for registers, shared in uses}
    for name in sorted(here.keys() | committed.keys()):
        if name not in committed:
            yield f"{name}: not in the table"
        elif name not in here:
            yield f"{name}: only in the table"
        elif steps(here[name]) != steps(committed[name]):
            yield f"{name}: (registers, shared bytes) {here[name]}; the table has {committed[name]}"


def read_table():
    header, *lines = TABLE.read_text().splitlines()
    committed = collections.defaultdict(list)
    for line in lines:
        registers, shared, name = line.split(None, 2)
        committed[name].append((int(registers), int(shared)))
    return header[2:].split(":")[0], committed


def write_table(compiler, kernels):
    lines = [f"# {compiler}: registers of a thread, bytes of static shared memory of a block, kernel"]
    for name, uses in sorted(kernels.items()):
        lines += [f"{registers:3d} {shared:6d}  {name}" for registers, shared in uses]
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    kernels, forbidden, architectures = kernels_of(arguments.programs)
    for program in arguments.programs:
        forbidden += merged_lambdas(program)
    compiler = f"nvcc {compiler_of(arguments.programs[0])}, {architectures}"
    if arguments.write:
        write_table(compiler, kernels)
    compiler_of_table, committed = read_table()
    found = list(differences(kernels, committed))
    for line in [*forbidden, *found]:
        print(line)
    if found and compiler != compiler_of_table:
        print(f"compiled by {compiler}, the table by {compiler_of_table}: differences are no error")
    elif found:
        print("where the differences are meant: gpu_kernels.py PROGRAM... --write")
    print(f"{len(kernels)} kernels, {len(forbidden)} forbidden, {len(found)} other than in {TABLE.name}")
    return bool(forbidden or (found and compiler == compiler_of_table))


if __name__ == "__main__":
    sys.exit(main())
