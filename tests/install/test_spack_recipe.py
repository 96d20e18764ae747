#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# test_spack_recipe.py SOURCE BUILD MPIEXEC: the Spack recipe, without Spack. Stand-ins for the directives and base
# classes, written from the published interface (Package API 2.2), refuse unknown arguments, malformed specs and
# undeclared variants. CMake runs with the recipe's arguments and must use each of them. What the recipe requires of its
# dependencies is compared with BUILTIN, spack.yaml and Dependencies.cmake. The methods for `spack install --test` and
# `spack test` run with the programs of BUILD.

import contextlib
import importlib.util
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

NAME = r"[a-z0-9][a-z0-9-]*"
SPEC = re.compile(rf"(?![a-z_]+=)({NAME})?(@[\w.:,=]+)?((?: ?[+~][a-z0-9_]+| [a-z_]+=[\w,]+)*)$|[a-z_]+=[\w,]+$")
COMPILER = re.compile(rf"%{NAME}(@[\w.:]+)?$")
BOOLEANS = ["cuda", "arrow", "onednn", "tests"]
GPUS = ("80", "86", "89", "90")
OFF, ON = (False, True), (True, False)  # the values that a variant accepts, its default first
CODECS = ("snappy", "zstd", "zlib", "brotli", "lz4")
# Spack's own recipes (github.com/spack/spack-packages), read on 2026-11-26 at the commit in the comment: versions, the
# newest first (only those that a check needs), and variants. Missing there: tomlplusplus, read in an older copy.
BUILTIN = {
    "arrow": (("23.0.1",), {"parquet": OFF, **dict.fromkeys(CODECS, OFF)}),  # e1d1a53c
    "catch2": (("3.16.0",), {}),  # 204bd349
    "cli11": (("2.6.0",), {}),  # 2c923527
    "fmt": (("12.1.0",), {}),  # 2e8260d2
    "hdf5": (("1.14.6",), {"mpi": ON, "tools": ON}),  # 0cd1d466
    "kokkos": (("5.0.0", "4.7.02"), {"openmp": OFF, "serial": OFF, "cuda": OFF, "cmake_lang": OFF,
                                     "cxxstd": ("17", "20", "23"), "cuda_arch": ("none", *GPUS)}),  # 0004cf7e
    "nccl": (("2.27.7-1",), {"cuda_arch": ("none", *GPUS)}),  # 20e90b16; it refuses cuda_arch=none
    "nlohmann-json": (("3.12.0",), {}),  # 00bb5ae5
    "onednn": (("3.0",), {"cpu_runtime": ("omp", "none", "tbb", "seq", "threadpool", "sycl")}),  # 6d843561
    "pcre2": (("10.44",), {}),  # 291de8da
    "tomlplusplus": (("3.4.0",), {}),
    "xxhash": (("0.8.3",), {}),  # ec833d43
}
# What the program needs, by the recipe's requirement or by default.
NEEDED = {"arrow": {"parquet": True, **dict.fromkeys(CODECS, True)}, "hdf5": {"mpi": True, "tools": True},
          "kokkos": {"openmp": True, "serial": True, "cxxstd": "20"}, "onednn": {"cpu_runtime": "omp"}}
recorded = {"variants": {}, "dependencies": [], "conditions": [], "conflicts": [], "versions": [], "ctest": []}
conditions = []


def check_spec(spec):
    match = SPEC.match(spec) or COMPILER.match(spec)
    assert match, f"not a spec: '{spec}'"
    return match


def settings(spec):
    """The variants of a spec: True, False or the values of NAME=VALUE,VALUE."""
    values = {name: sign == "+" for sign, name in re.findall(r"([+~])([a-z0-9_]+)", spec)}
    return values | {name: tuple(value.split(",")) for name, value in re.findall(r"\b([a-z_]+)=([\w,]+)", spec)}


def satisfied(spec, chosen):
    """Whether the variants of a concrete spec satisfy an abstract one. A concrete cuda_arch may have more values."""
    return all(chosen[name] == value if isinstance(value, bool) else set(value) <= set(chosen[name])
               for name, value in settings(spec).items())


def condition(when):
    if when is not None:
        check_spec(when)
        recorded["conditions"].append(when)
    return " ".join(conditions + [when] if when else conditions)


@contextlib.contextmanager
def when_block(spec):
    condition(spec)
    conditions.append(spec)
    yield
    conditions.pop()


def variant(name, default=None, description="", values=None, multi=None, validator=None, when=None, sticky=False):
    assert description, f"variant {name} has no description"
    condition(when)
    recorded["variants"][name] = default


def depends_on(spec, when=None, type=("build", "link"), patches=None):
    assert set([type] if isinstance(type, str) else type) <= {"build", "link", "run", "test"}, type
    recorded["dependencies"].append((check_spec(spec).group(1), spec, condition(when)))


def conflicts(conflict_spec, when=None, msg=None):
    check_spec(conflict_spec)
    assert msg, f"the conflict with {conflict_spec} has no message"
    recorded["conflicts"].append((conflict_spec, condition(when), msg))


def version(ver, checksum=None, *, branch=None, tag=None, commit=None, sha256=None, url=None, git=None, preferred=None,
            deprecated=None, submodules=None):
    assert branch or tag or commit or sha256, f"version {ver} has no source"
    recorded["versions"].append(ver)


def generator(*names, default=None):
    assert set(names) <= {"make", "ninja"}, names


def define(name, value):
    if isinstance(value, bool):
        return f"-D{name}:BOOL={'ON' if value else 'OFF'}"
    return f"-D{name}:STRING={value if isinstance(value, str) else ';'.join(value)}"


@contextlib.contextmanager
def working_dir(folder):
    before = os.getcwd()
    os.chdir(folder)
    yield
    os.chdir(before)


def ctest(*arguments):
    """Lists the tests that ctest would run here."""
    listed = subprocess.run(["ctest", "-N", *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout
    recorded["ctest"].append(int(re.search(r"^Total Tests: (\d+)$", listed, re.M)[1]))


class Executable:
    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, output=None, error=None):
        return subprocess.run([self.path, *arguments], check=True, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout


def which(path, required=False):
    assert os.access(path, os.X_OK), f"{path} is not a program"
    return Executable(path)


class Prefix(str):
    def __getattr__(self, name):
        return Prefix(os.path.join(self, name))


class Spec:
    """A concrete spec, as far as recipes ask it: variants, and prefixes of dependencies."""

    def __init__(self, values, prefixes):
        self.variants = {name: types.SimpleNamespace(value=value) for name, value in values.items()}
        self.prefixes = prefixes

    def satisfies(self, text):
        assert settings(text).keys() <= recorded["variants"].keys(), f"satisfies('{text}'): no such variant"
        return satisfied(text, {name: variant.value for name, variant in self.variants.items()})

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=self.prefixes[name])


class CMakePackage:
    def __init__(self, spec, prefix, build=None):
        self.spec, self.prefix = spec, prefix
        self.builder = types.SimpleNamespace(build_directory=build)

    define = staticmethod(define)

    def define_from_variant(self, name, variant_name=None):
        return define(name, self.spec.variants[variant_name or name.lower()].value)


def load(recipe):
    """The class of the recipe, imported with the stand-ins as spack.package and spack_repo.builtin."""
    class CudaPackage:
        cuda_arch_values = ("70", "80", "86", "89", "90", "90a", "100")

    recorded["variants"].update(cuda=False, cuda_arch="none")
    modules = {"spack": {}, "spack_repo": {}, "spack_repo.builtin": {}, "spack_repo.builtin.build_systems": {},
               "spack_repo.builtin.build_systems.cmake": {"CMakePackage": CMakePackage, "generator": generator},
               "spack_repo.builtin.build_systems.cuda": {"CudaPackage": CudaPackage},
               "spack.package": {"variant": variant, "depends_on": depends_on, "conflicts": conflicts, "ctest": ctest,
                                 "version": version, "when": when_block, "license": lambda name: None,
                                 "which": which, "join_path": os.path.join, "working_dir": working_dir}}
    for name, contents in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(contents)
    spec = importlib.util.spec_from_file_location("package", recipe)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module.Kozero


def choice(cuda_arch="none", **booleans):
    """The variants of a concrete spec, off unless named."""
    return dict.fromkeys(BOOLEANS, False) | booleans | {"cuda_arch": (cuda_arch,)}


def check_arguments(kozero):
    """Each combination of variants sets each of them."""
    names = [name for name, default in recorded["variants"].items() if isinstance(default, bool)]
    assert names == BOOLEANS, names
    for values in itertools.product((False, True), repeat=len(names)):
        arguments = kozero(Spec(choice("80", **dict(zip(names, values))), {}), Prefix("/prefix")).cmake_args()
        for argument in arguments:
            assert re.match(r"-D\w+:(?:BOOL=(?:ON|OFF)|STRING=.*)$", argument), f"not an argument of CMake: {argument}"
        for name, value in zip(names, values):
            assert f"-DKOZERO_{name.upper()}:BOOL={'ON' if value else 'OFF'}" in arguments, (name, arguments)


def run_cmake(source, build, arguments):
    """CMake's output. It must use all variables that it is given (-D), but not those of a file (-C)."""
    result = subprocess.run(["cmake", "-S", source, "-B", build, *arguments], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    assert result.returncode == 0, f"cmake {' '.join(map(str, arguments))}\n{result.stdout}"
    _, warning, unused = result.stdout.partition("variables were not used by the project:")
    assert not warning, f"CMake has no use for {' '.join(unused.partition('--')[0].split())}"
    return result.stdout


def check_configuration(kozero, source, build, folder):
    """Configures all variants but cuda, on and off, with the compilers and libraries that BUILD found."""
    cache = (build / "CMakeCache.txt").read_text()
    found = re.findall(r"^(\w+):(?:FILEPATH|PATH|STRING|UNINITIALIZED)=(/.*)$", cache, re.M)
    lines = [f'set({name} [==[{value}]==] CACHE PATH "")\n' for name, value in found]
    (folder / "found.cmake").write_text("".join(lines))
    generator_of_build = re.search(r"^CMAKE_GENERATOR:INTERNAL=(.*)$", cache, re.M)[1]
    has_onednn = "KOZERO_ONEDNN:BOOL=ON" in cache
    for on in (True, False):
        chosen = choice(arrow=on, onednn=on and has_onednn, tests=on)
        arguments = kozero(Spec(chosen, {}), Prefix("/prefix")).cmake_args()
        run_cmake(source, folder / "build", ["-G", generator_of_build, "-C", folder / "found.cmake", *arguments])


def check_cuda_language(kozero, source, folder):
    """CudaLanguage.cmake uses the recipe's architecture. It runs in a project that enables no language."""
    (folder / "cuda").mkdir()
    (folder / "cuda/CMakeLists.txt").write_text(f'''
        cmake_minimum_required(VERSION 3.25)
        project(cuda_language LANGUAGES NONE)
        function(enable_language)
        endfunction()
        function(find_package)
        endfunction()
        set(CMAKE_CUDA_COMPILER nvcc)
        include("{source}/cmake/CudaLanguage.cmake")
        message(STATUS "architecture ${{CMAKE_CUDA_ARCHITECTURES}}")''')
    arguments = kozero(Spec(choice("90", cuda=True), {}), Prefix("/prefix")).cmake_args()
    own = [argument for argument in arguments if not argument.startswith("-DKOZERO_")]
    assert "architecture 90\n" in run_cmake(folder / "cuda", folder / "cuda/build", own), own


def refusals(chosen):
    return [message for spec, when, message in recorded["conflicts"]
            if not COMPILER.match(spec) and satisfied(f"{spec} {when}", chosen)]


def check_conflicts():
    """With CUDA one architecture is accepted; none, two, and those that Kokkos is not built for are refused."""
    assert not refusals(choice())
    for architecture in GPUS:
        assert not refusals(choice(architecture, cuda=True)), architecture
    for architectures in [("none",), ("70",), ("90a",), *itertools.combinations(GPUS, 2), GPUS]:
        messages = refusals(choice(cuda=True) | {"cuda_arch": architectures})
        assert messages and all("cuda_arch" in message for message in messages), (architectures, messages)


def required(chosen):
    """For each dependency of the recipe, the variants that it requires."""
    variants = {}
    for name, spec, when in recorded["dependencies"]:
        for variant_name, value in settings(spec).items() if satisfied(when, chosen) else ():
            value = value if isinstance(value, bool) else value[0]
            earlier = variants.setdefault(name, {}).setdefault(variant_name, value)
            assert earlier == value, f"{spec}: another dependency requires {variant_name}={earlier}"
    return variants


def check_variants(chosen, needed):
    """The dependencies have these variants, and with the required ones and the defaults what the program needs."""
    variants = required(chosen)
    for name, values in variants.items():
        for variant_name, value in values.items():
            accepted = BUILTIN[name][1].get(variant_name, ())
            assert value in accepted, f"{name} {variant_name}={value}: Spack's recipe accepts {accepted}"
    for name, values in needed.items():
        for variant_name, value in values.items():
            actual = variants.get(name, {}).get(variant_name, BUILTIN[name][1][variant_name][0])
            assert actual == value, f"{name}: {variant_name} is {actual}; needed is {value}"


def check_environment(source):
    """spack.yaml has the libraries of the recipe, with the same versions and variants."""
    environment = re.findall(r'^    - "([^"]+)"', (source / "spack.yaml").read_text(), re.M)
    there = {SPEC.match(spec)[1]: spec for spec in environment}
    here = {name for name, _, _ in recorded["dependencies"]}
    missing = there.keys() - {"ninja", "ccache", "pkgconf"} - here
    assert not missing, f"in spack.yaml and not in the recipe: {missing}"
    own, variants = versions(), required(choice(arrow=True, onednn=True, tests=True))
    for name, spec in there.items():
        accepted, in_recipe = SPEC.match(spec)[2], own.get(name)
        assert accepted in (None, in_recipe), f"{name}: {in_recipe} in the recipe, {accepted} in spack.yaml"
        values = {key: value if isinstance(value, bool) else value[0] for key, value in settings(spec).items()}
        assert values == variants.get(name, {}), f"{name}: {variants.get(name)} in the recipe, {values} in spack.yaml"


def versions():
    """The versions that the recipe accepts of each dependency, such as @1.10: or @4.7."""
    return {name: SPEC.match(spec)[2] for name, spec, _ in recorded["dependencies"] if SPEC.match(spec)[2]}


def numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def accepts(constraint, version):
    least = numbers(constraint)
    return numbers(version) >= least if constraint.endswith(":") else numbers(version)[:len(least)] == least


def check_versions(source):
    """The versions are those of CMake, Spack has one of them, and its newest Kokkos is of the minor version tested."""
    own = versions()
    cmake = "".join(path.read_text() for path in source.glob("cmake/*.cmake"))
    for least, name in re.findall(r"(?:kozero_find\(\w+ |>=)([\d.]+)[^\n]*SPACK ([a-z0-9-]+)", cmake):
        assert own.get(name) == f"@{least}:", f"{name}: {own.get(name)} in the recipe, {least} or newer in CMake"
    script = (source / "cmake/install_kokkos.sh").read_text()
    tested = re.search(r"^readonly kKokkosVersion=(\d+\.\d+)", script, re.M)[1]
    for name, (published, _) in BUILTIN.items():
        accepted = [version for version in published if accepts(own[name], version)]
        assert accepted, f"{name}: the recipe accepts {own[name]}; Spack has {published}"
        assert name != "kokkos" or accepts(f"@{tested}", accepted[0]), f"Kokkos {accepted[0]}; tested is {tested}"


def check_dependencies(source):
    for spec in recorded["conditions"]:
        unknown = settings(spec).keys() - recorded["variants"].keys()
        assert not unknown, f"when='{spec}': no variant {unknown}"
    assert {"c", "cxx", "cuda"} <= {name for name, _, _ in recorded["dependencies"]}
    check_versions(source)
    host = choice(arrow=True, onednn=True, tests=True)
    check_variants(host, NEEDED)
    check_environment(source)
    for architecture in GPUS:
        gpu = {"cuda": True, "cmake_lang": True, "cuda_arch": architecture}
        check_variants(host | choice(architecture, cuda=True), {"kokkos": gpu, "nccl": {"cuda_arch": architecture}})


def check_build_tests(kozero, build):
    """`spack install --test=root` runs tests of the build, with +tests only."""
    for on in (False, True):
        kozero(Spec(choice(tests=on), {}), Prefix("/prefix"), build).check()
    assert len(recorded["ctest"]) == 1 and recorded["ctest"][0] > 0, recorded["ctest"]


def check_tests(kozero, source, build, mpiexec, folder):
    """`spack test run` runs each test_ method in a folder of its own."""
    prefix = folder / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "share/kozero").mkdir(parents=True)
    (prefix / "bin/kozero").symlink_to(build / "kozero")
    (prefix / "bin/mpiexec").write_text(f'#!/bin/sh\nexec {mpiexec} "$@"\n')
    (prefix / "bin/mpiexec").chmod(0o755)
    (prefix / "share/kozero/inputs").symlink_to(source / "inputs")
    package = kozero(Spec(choice(), {"mpi": Prefix(prefix)}), Prefix(prefix))
    tests = [name for name in dir(package) if name.startswith("test_")]
    assert len(tests) >= 2, tests
    for name in tests:
        assert getattr(package, name).__doc__, f"{name} has no description"
        (folder / name).mkdir()
        with working_dir(folder / name):
            getattr(package, name)()
    return tests


def main():
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    folder = source / "spack/spack_repo/kozero"
    assert re.fullmatch(r"repo:\n  namespace: kozero\n  api: v2\.2\n", (folder / "repo.yaml").read_text())
    kozero = load(folder / "packages/kozero/package.py")
    assert kozero.git == source.as_uri() and recorded["versions"], kozero.git
    check_arguments(kozero)
    check_conflicts()
    check_dependencies(source)
    check_build_tests(kozero, build)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_cuda_language(kozero, source, folder)
        check_configuration(kozero, source, build, folder)
        tests = check_tests(kozero, source, build, sys.argv[3], folder)
    print(f"{len(recorded['dependencies'])} dependencies, {len(recorded['variants'])} variants; "
          f"--test=root runs {recorded['ctest'][0]} tests; ran {', '.join(tests)}")


main()
