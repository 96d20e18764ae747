# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Dependencies.cmake: finds what KoZeRO stands on and gives each part one imported target:
#   Kokkos::kokkos  MPI::MPI_CXX  external::hdf5  DNNL::dnnl  Catch2::Catch2
#   tomlplusplus::tomlplusplus  nlohmann_json::nlohmann_json  CLI11::CLI11  fmt::fmt  external::pcre2  external::xxhash
#   with KOZERO_CUDA: CUDA::cublasLt, external::nccl
# What is missing stops the configuration with its name and the remedy. Nothing is downloaded here; kozero.sh installs.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(kozero_missing what debian spack)
  message(FATAL_ERROR "${what} was not found. On Debian: apt-get install ${debian}, or let ./kozero.sh build do it. "
                      "With Spack: spack add ${spack}, or spack env activate this folder. Elsewhere: point CMAKE_PREFIX_PATH at it.")
endfunction()

# kozero_find(<cmake package> [<version>] WHAT <name> DEBIAN <package> SPACK <spec>)
macro(kozero_find package)
  cmake_parse_arguments(_find "" "WHAT;DEBIAN;SPACK" "" ${ARGN})
  find_package(${package} ${_find_UNPARSED_ARGUMENTS} QUIET CONFIG)
  if(NOT ${package}_FOUND)
    kozero_missing("${_find_WHAT}" "${_find_DEBIAN}" "${_find_SPACK}")
  endif()
endmacro()

# kozero_pkg_config(<name> <pkg-config module> WHAT <name> DEBIAN <package> SPACK <spec>): external::<name>
macro(kozero_pkg_config name module)
  cmake_parse_arguments(_find "" "WHAT;DEBIAN;SPACK" "" ${ARGN})
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    kozero_missing("${_find_WHAT}" "${_find_DEBIAN}" "${_find_SPACK}")
  endif()
  add_library(external::${name} ALIAS PkgConfig::${name})
endmacro()

include(KokkosLibrary)
include(MessagePassing)
include(ParallelHdf5)

kozero_find(dnnl 2.6 WHAT "oneDNN (2.6 or newer)" DEBIAN libdnnl-dev SPACK onednn)
kozero_find(tomlplusplus 3.3 WHAT "toml++" DEBIAN libtomlplusplus-dev SPACK tomlplusplus)
kozero_find(nlohmann_json 3.11 WHAT "nlohmann-json" DEBIAN nlohmann-json3-dev SPACK nlohmann-json)
kozero_find(CLI11 2.1 WHAT "CLI11" DEBIAN libcli11-dev SPACK cli11)
kozero_find(fmt 9 WHAT "fmt" DEBIAN libfmt-dev SPACK fmt)
kozero_pkg_config(pcre2 libpcre2-8 WHAT "PCRE2" DEBIAN libpcre2-dev SPACK pcre2)
kozero_pkg_config(xxhash libxxhash>=0.8 WHAT "xxHash (0.8 or newer)" DEBIAN libxxhash-dev SPACK xxhash)
if(KOZERO_TESTS)
  kozero_find(Catch2 3.4 WHAT "Catch2 (3.4 or newer)" DEBIAN "-t bookworm-backports catch2" SPACK catch2@3)
endif()

if(KOZERO_CUDA)
  find_path(KOZERO_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(KOZERO_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NOT KOZERO_NCCL_INCLUDE OR NOT KOZERO_NCCL_LIBRARY)
    kozero_missing("NCCL (2.18 or newer)" libnccl-dev nccl)
  endif()
  add_library(external::nccl INTERFACE IMPORTED)
  target_include_directories(external::nccl INTERFACE ${KOZERO_NCCL_INCLUDE})
  target_link_libraries(external::nccl INTERFACE ${KOZERO_NCCL_LIBRARY})
endif()
