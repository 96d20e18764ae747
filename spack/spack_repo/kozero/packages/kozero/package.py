# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# package.py: the Spack recipe, for Spack 1 (Package API 2.2). It builds the clone that it is in.
#   spack repo add spack/spack_repo/kozero && spack install kozero
# Constraints are those of cmake/Dependencies.cmake; spack.yaml has the same libraries without the program.

import itertools
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *

# What cmake/install_kokkos.sh builds Kokkos for.
ARCHITECTURES = ("80", "86", "89", "90")
ONE_ARCHITECTURE = f"Kokkos is built for one cuda_arch; accepted is one of {', '.join(ARCHITECTURES)}"


class Kozero(CMakePackage, CudaPackage):
    """ZeRO training of language models on Kokkos, MPI and HDF5."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("arrow", default=True, description="Read Parquet files with Arrow")
    variant("onednn", default=False, description="Compare matrix products with oneDNN's in `kozero bench kernels`")
    variant("tests", default=False, description="Build the tests; `spack install --test=root` runs those labeled unit")
    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")
    conflicts("%gcc@:11", msg="KoZeRO is tested with GCC 12 and newer")

    depends_on("kokkos@4.7 +openmp +serial cxxstd=20")  # no Kokkos 5: see docs/install.md
    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("tomlplusplus@3.3:")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    depends_on("fmt@9:")
    depends_on("pcre2@10.40:")
    depends_on("xxhash@0.8:")
    depends_on("sentencepiece")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("zstd")
    # Without the codecs, Arrow refuses files that are compressed with them, which most published files are.
    depends_on("arrow@20: +parquet +snappy +zstd +zlib +brotli +lz4", when="+arrow")
    depends_on("onednn@2.6: cpu_runtime=omp", when="+onednn")
    depends_on("catch2@3.4:", when="+tests")
    depends_on("hdf5 +tools", when="+tests")

    with when("+cuda"):
        depends_on("cuda@12:")
        depends_on("nccl@2.18:")
        depends_on("kokkos +cuda +cmake_lang")
    for architecture in ARCHITECTURES:
        depends_on(f"kokkos cuda_arch={architecture}", when=f"+cuda cuda_arch={architecture}")
        depends_on(f"nccl cuda_arch={architecture}", when=f"+cuda cuda_arch={architecture}")
    for architecture in CudaPackage.cuda_arch_values:
        if architecture not in ARCHITECTURES:
            conflicts("+cuda", when=f"cuda_arch={architecture}", msg=ONE_ARCHITECTURE)
    for first, second in itertools.combinations(ARCHITECTURES, 2):
        conflicts("+cuda", when=f"cuda_arch={first},{second}", msg=ONE_ARCHITECTURE)
    conflicts("+cuda", when="cuda_arch=none", msg="+cuda needs a cuda_arch, such as cuda_arch=80")

    def cmake_args(self):
        args = [
            self.define_from_variant("KOZERO_CUDA", "cuda"),
            self.define_from_variant("KOZERO_ARROW", "arrow"),
            self.define_from_variant("KOZERO_ONEDNN", "onednn"),
            self.define_from_variant("KOZERO_TESTS", "tests"),
            self.define("KOZERO_MARCH", ""),  # Spack's compiler wrapper adds the -march of its target
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def check(self):
        if self.spec.satisfies("+tests"):
            with working_dir(self.builder.build_directory):
                ctest("--output-on-failure", "-L", "unit")

    @property
    def program(self):
        name = "kozero-cuda" if self.spec.satisfies("+cuda") else "kozero"
        return which(join_path(self.prefix.bin, name), required=True)

    def test_version(self):
        """the program starts and prints its version"""
        assert "kozero" in self.program("--version", output=str.split, error=str.split).lower()

    def test_train(self):
        """20 steps of a small model on two ranks"""
        mpiexec = which(join_path(self.spec["mpi"].prefix.bin, "mpiexec"), required=True)
        deck = join_path(self.prefix.share, "kozero", "inputs", "demos", "synthetic.toml")
        out = mpiexec("-n", "2", self.program.path, "train", deck, "run.steps=20", "run.dir=run",
                      output=str.split, error=str.split)
        assert "step 20/20" in out
