# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# KokkosLibrary.cmake: finds Kokkos 4.7 or newer, with CUDA where KOZERO_CUDA asks for it: first where CMake looks, then
# where cmake/install_kokkos.sh put it in the user's cache.

set(_device host)
if(KOZERO_CUDA)
  set(_device cuda)
endif()

find_package(Kokkos 4.7 QUIET CONFIG)
if(NOT Kokkos_FOUND)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env CXX=${CMAKE_CXX_COMPILER} ${CMAKE_CURRENT_LIST_DIR}/install_kokkos.sh --print-prefix ${_device}
    OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_package(Kokkos 4.7 QUIET CONFIG PATHS ${_prefix} NO_DEFAULT_PATH)
endif()
if(NOT Kokkos_FOUND)
  kozero_missing("Kokkos (4.7 or newer)" DEBIAN cmake/install_kokkos.sh SPACK kokkos+openmp)
endif()
if(Kokkos_FOUND AND KOZERO_CUDA AND NOT "CUDA" IN_LIST Kokkos_DEVICES)
  message(FATAL_ERROR "The Kokkos in ${Kokkos_DIR} has no CUDA: point Kokkos_DIR at one built with Kokkos_ENABLE_CUDA and "
                      "Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE, or build one with: cmake/install_kokkos.sh cuda")
endif()
