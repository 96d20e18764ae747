#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# test_spack_recipe.py SOURCE BUILD MPIEXEC: the Spack recipe, without Spack. Stand-ins for the directives and base
# classes, written from the published interface (Package API 2.2), refuse unknown arguments, malformed specs and
# undeclared variants. CMake must have the options that each combination of variants sets, versions must be those of
# spack.yaml and Dependencies.cmake, and the methods for `spack test` run with the programs of BUILD.

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
SPEC = re.compile(rf"(?![a-z_]+=)({NAME})?(@[\w.:,=]+)?((?: ?[+~][a-z_]+| [a-z_]+=[\w,]+)*)$|[a-z_]+=[\w,]+$")
COMPILER = re.compile(rf"%{NAME}(@[\w.:]+)?$")
CMAKES_OWN = {"CMAKE_CUDA_ARCHITECTURES"}
recorded = {"variants": {}, "dependencies": [], "conditions": [], "conflicts": [], "versions": []}
conditions = []


def check_spec(spec):
    match = SPEC.match(spec) or COMPILER.match(spec)
    assert match, f"not a spec: '{spec}'"
    return match


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
    recorded["conflicts"].append((conflict_spec, condition(when)))


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
        match = re.match(r"([+~])([a-z_]+)$", text)
        assert match and match[2] in recorded["variants"], f"satisfies('{text}'): no such variant"
        return self.variants[match[2]].value == (match[1] == "+")

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=self.prefixes[name])


class CMakePackage:
    def __init__(self, spec, prefix):
        self.spec, self.prefix = spec, prefix

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
               "spack.package": {"variant": variant, "depends_on": depends_on, "conflicts": conflicts, "version": version,
                                 "when": when_block, "license": lambda name: None, "which": which,
                                 "join_path": os.path.join}}
    for name, contents in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(contents)
    spec = importlib.util.spec_from_file_location("package", recipe)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module.Kozero


def options_of_cmake(source):
    text = "".join(path.read_text() for path in [source / "CMakeLists.txt", *source.glob("cmake/*.cmake")])
    return set(re.findall(r"option\((KOZERO_\w+)", text)) | set(re.findall(r"set\((KOZERO_\w+) [^\n]*CACHE STRING", text))


def check_arguments(kozero, options):
    names = [name for name, default in recorded["variants"].items() if isinstance(default, bool)]
    assert names == ["cuda", "arrow", "onednn", "tests"], names
    for values in itertools.product((False, True), repeat=len(names)):
        chosen = dict(zip(names, values), cuda_arch=("80",))
        arguments = kozero(Spec(chosen, {}), Prefix("/prefix")).cmake_args()
        for argument in arguments:
            match = re.match(r"-D(\w+):(?:BOOL=(?:ON|OFF)|STRING=.*)$", argument)
            assert match, f"not an argument of CMake: {argument}"
            assert match[1] in options | CMAKES_OWN, f"CMake has no option {match[1]}"
        for name, value in zip(names, values):
            assert f"-DKOZERO_{name.upper()}:BOOL={'ON' if value else 'OFF'}" in arguments, (name, arguments)


def versions(specs):
    return {match[1]: match[2] for spec in specs if (match := SPEC.match(spec)) and match[1] and match[2]}


def check_dependencies(source):
    for spec in recorded["conditions"]:
        for name in re.findall(r"[+~]([a-z_]+)|\b([a-z_]+)=", spec):
            assert (name[0] or name[1]) in recorded["variants"], f"when='{spec}': no such variant"
    here = {name for name, _, _ in recorded["dependencies"]}
    assert {"c", "cxx", "cuda"} <= here, here
    environment = re.findall(r'^    - "([^"]+)"', (source / "spack.yaml").read_text(), re.M)
    there = {SPEC.match(spec)[1] for spec in environment} - {"ninja", "ccache", "pkgconf"}
    assert there <= here, f"in spack.yaml and not in the recipe: {there - here}"
    own = versions(spec for _, spec, _ in recorded["dependencies"])
    for name, accepted in versions(environment).items():
        assert own.get(name) == accepted, f"{name}: {own.get(name)} in the recipe, {accepted} in spack.yaml"
    cmake = "".join(path.read_text() for path in source.glob("cmake/*.cmake"))
    for least, name in re.findall(r"(?:kozero_find\(\w+ |>=)([\d.]+)[^\n]*SPACK ([a-z0-9-]+)", cmake):
        assert own.get(name) == f"@{least}:", f"{name}: {own.get(name)} in the recipe, {least} or newer in CMake"


def check_tests(kozero, source, build, mpiexec):
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder, "prefix")
        (prefix / "bin").mkdir(parents=True)
        (prefix / "share/kozero").mkdir(parents=True)
        (prefix / "bin/kozero").symlink_to(build / "kozero")
        (prefix / "bin/mpiexec").write_text(f'#!/bin/sh\nexec {mpiexec} "$@"\n')
        (prefix / "bin/mpiexec").chmod(0o755)
        (prefix / "share/kozero/inputs").symlink_to(source / "inputs")
        os.chdir(folder)
        package = kozero(Spec({"cuda": False}, {"mpi": Prefix(prefix)}), Prefix(prefix))
        tests = [name for name in dir(package) if name.startswith("test_")]
        assert len(tests) >= 2, tests
        for name in tests:
            assert getattr(package, name).__doc__, f"{name} has no description"
            getattr(package, name)()
        os.chdir("/")
    return tests


def main():
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    folder = source / "spack/spack_repo/kozero"
    assert re.fullmatch(r"repo:\n  namespace: kozero\n  api: v2\.2\n", (folder / "repo.yaml").read_text())
    kozero = load(folder / "packages/kozero/package.py")
    assert kozero.git == source.as_uri() and recorded["versions"], kozero.git
    check_arguments(kozero, options_of_cmake(source))
    check_dependencies(source)
    tests = check_tests(kozero, source, build, sys.argv[3])
    print(f"{len(recorded['dependencies'])} dependencies, {len(recorded['variants'])} variants; ran {', '.join(tests)}")


main()
