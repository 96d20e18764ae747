# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# PrecompiledHeaders.cmake: headers that most sources of a target need are parsed once. Parsing them takes most of the
# time of a host build.
#   kozero_precompile(<target> CONTENT kokkos|json|test)    parses them for this target and for those that reuse them
#   kozero_precompile(<target> REUSE <other target>)        of a target with the same compiler options
# A source still includes what it uses: style.headers compiles each header without them, and so does a build with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON. <iostream> is in none, since it adds an initializer to each object.
# nvcc has no precompiled headers, so a CUDA build has none.

set(_standard <algorithm> <cmath> <cstdint> <functional> <memory> <optional> <string> <vector>)
set(KOZERO_PRECOMPILED_kokkos <Kokkos_Core.hpp> ${_standard})
set(KOZERO_PRECOMPILED_json ${KOZERO_PRECOMPILED_kokkos} <filesystem> <fmt/format.h> <nlohmann/json.hpp>)
set(KOZERO_PRECOMPILED_test ${KOZERO_PRECOMPILED_kokkos} <catch2/catch_test_macros.hpp>)

function(kozero_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CONTENT;REUSE" "")
  if(KOZERO_CUDA OR NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    return()
  endif()
  if(arg_REUSE)
    target_precompile_headers(${target} REUSE_FROM ${arg_REUSE})
  else()
    target_precompile_headers(${target} PRIVATE ${KOZERO_PRECOMPILED_${arg_CONTENT}})
  endif()
  # For ccache: GCC's preprocessed text names the precompiled header, and Clang's precompiled header has no time.
  # GCC 12 warns of the standard library's own strings (GCC bug 105651) where their header is precompiled.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-stringop-overflow -Wno-restrict -Wno-array-bounds)
  else()
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
