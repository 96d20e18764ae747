# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Dependencies.cmake: finds what KoZeRO stands on and gives each part one imported target:
#   Kokkos::kokkos  MPI::MPI_CXX  external::hdf5  DNNL::dnnl (not with KOZERO_ONEDNN=OFF)  Catch2::Catch2
#   tomlplusplus::tomlplusplus  nlohmann_json::nlohmann_json  CLI11::CLI11  fmt::fmt  external::pcre2  external::xxhash
#   external::sentencepiece  external::utf8proc  external::zlib  external::zstd
#   where it is there: external::parquet
#   with KOZERO_CUDA: CUDA::cublasLt, external::nccl
#   with KOZERO_CUDA or KOZERO_TESTS, where it is there: external::cudnn_frontend
# What is missing stops the configuration, all of it at once, with the remedy. Nothing is downloaded here: kozero.sh
# installs, and reads from missing.txt in the build folder what (name|Debian packages|Spack spec, one part a line).

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# kozero_missing(<name> DEBIAN <packages> SPACK <spec>)
function(kozero_missing what)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DEBIAN;SPACK" "")
  set_property(GLOBAL APPEND PROPERTY KOZERO_MISSING "${what}|${arg_DEBIAN}|${arg_SPACK}")
endfunction()

function(kozero_stop_if_missing)
  get_property(missing GLOBAL PROPERTY KOZERO_MISSING)
  list(JOIN missing "\n" lines)
  if(NOT KOZERO_PACKAGE)
    file(WRITE ${CMAKE_BINARY_DIR}/missing.txt "${lines}\n")
  endif()
  if(missing AND KOZERO_PACKAGE)  # of find_package(KoZeRO), which says it
    return()
  elseif(missing)
    list(TRANSFORM missing REPLACE "^(.*)[|](.*)[|](.*)$" "  \\1 -- Debian: \\2 -- Spack: \\3")
    list(JOIN missing "\n" lines)
    message(FATAL_ERROR "Not found:\n${lines}\n./kozero.sh build installs them on Debian; with Spack: spack env activate . && "
                        "spack install; elsewhere point CMAKE_PREFIX_PATH at them.")
  endif()
endfunction()

# kozero_find(<cmake package> [<version>] WHAT <name> DEBIAN <packages> SPACK <spec>)
macro(kozero_find package)
  cmake_parse_arguments(_find "" "WHAT;DEBIAN;SPACK" "" ${ARGN})
  find_package(${package} ${_find_UNPARSED_ARGUMENTS} QUIET CONFIG)
  if(NOT ${package}_FOUND)
    kozero_missing("${_find_WHAT}" DEBIAN "${_find_DEBIAN}" SPACK "${_find_SPACK}")
  endif()
endmacro()

# kozero_pkg_config(<name> <pkg-config module> WHAT <name> DEBIAN <packages> SPACK <spec>): external::<name>
macro(kozero_pkg_config name module)
  cmake_parse_arguments(_find "" "WHAT;DEBIAN;SPACK" "" ${ARGN})
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(${name}_FOUND)
    add_library(external::${name} ALIAS PkgConfig::${name})
  else()
    kozero_missing("${_find_WHAT}" DEBIAN "${_find_DEBIAN}" SPACK "${_find_SPACK}")
  endif()
endmacro()

include(KokkosLibrary)
include(MessagePassing)
include(Hdf5)
include(OneDnn)

kozero_find(tomlplusplus 3.3 WHAT "toml++" DEBIAN libtomlplusplus-dev SPACK tomlplusplus)
kozero_find(nlohmann_json 3.11 WHAT "nlohmann-json" DEBIAN nlohmann-json3-dev SPACK nlohmann-json)
if(NOT KOZERO_PACKAGE)
  kozero_find(CLI11 2.1 WHAT "CLI11" DEBIAN libcli11-dev SPACK cli11)
endif()
kozero_find(fmt 9 WHAT "fmt" DEBIAN libfmt-dev SPACK fmt)
kozero_pkg_config(pcre2 libpcre2-8>=10.40 WHAT "PCRE2 (10.40 or newer)" DEBIAN libpcre2-dev SPACK pcre2)
kozero_pkg_config(xxhash libxxhash>=0.8 WHAT "xxHash (0.8 or newer)" DEBIAN libxxhash-dev SPACK xxhash)
kozero_pkg_config(sentencepiece sentencepiece WHAT "SentencePiece" DEBIAN libsentencepiece-dev SPACK sentencepiece)
kozero_pkg_config(utf8proc libutf8proc WHAT "utf8proc" DEBIAN libutf8proc-dev SPACK utf8proc)
kozero_pkg_config(zlib zlib WHAT "zlib" DEBIAN zlib1g-dev SPACK zlib-api)
kozero_pkg_config(zstd libzstd WHAT "zstd" DEBIAN libzstd-dev SPACK zstd)
include(ArrowLibrary)
if(KOZERO_TESTS)
  kozero_find(Catch2 3.4 WHAT "Catch2 (3.4 or newer)" DEBIAN catch2 SPACK catch2@3)
  find_program(KOZERO_H5DUMP NAMES h5dump DOC "HDF5's own reader: tests read a weights file with it")
  if(NOT KOZERO_H5DUMP)
    kozero_missing("HDF5's tools" DEBIAN hdf5-tools SPACK hdf5+tools)
  endif()
endif()

if(KOZERO_CUDA)
  include(NcclLibrary)
endif()
if(KOZERO_GPU_EMULATOR AND NOT KOZERO_CUDA)
  message(FATAL_ERROR "KOZERO_GPU_EMULATOR=ON needs KOZERO_CUDA=ON: the emulator runs the programs of a CUDA build")
endif()
if(KOZERO_CUDA OR KOZERO_TESTS)
  include(CudnnFrontend)
endif()
kozero_stop_if_missing()
if(KOZERO_CUDA)
  include(KernelArguments)
endif()
