# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# KernelArguments.cmake: stops the configuration if nvcc lays out a Kokkos::View in a kernel's argument differently on the
# host and on the device, whichever Kokkos was found: every kernel would then read wrong bytes, on every GPU.
# Compiles kernel_arguments.cu once for each Kokkos and nvcc, and compares the object's figures with the PTX's.

set(_probe ${CMAKE_CURRENT_LIST_DIR}/kernel_arguments.cu)
file(SHA256 ${_probe} _key)
file(GLOB _configuration ${Kokkos_DIR}/*.cmake)  # written anew by each installation
foreach(file IN LISTS _configuration)
  file(TIMESTAMP ${file} _time)
  string(APPEND _key " ${_time}")
endforeach()
string(APPEND _key " ${Kokkos_DIR} ${Kokkos_VERSION} ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}"
               " ${CMAKE_CUDA_HOST_COMPILER}")
if(NOT KOZERO_KERNEL_ARGUMENTS STREQUAL _key)
  set(_folder ${PROJECT_BINARY_DIR}/kernel_arguments)
  file(REMOVE_RECURSE ${_folder})
  file(MAKE_DIRECTORY ${_folder})
  get_target_property(_includes Kokkos::kokkoscore INTERFACE_INCLUDE_DIRECTORIES)
  list(TRANSFORM _includes PREPEND -I)
  execute_process(
    COMMAND ${CMAKE_CUDA_COMPILER} -ccbin ${CMAKE_CUDA_HOST_COMPILER} -std=c++20 --extended-lambda --expt-relaxed-constexpr
            -arch=sm_80 ${_includes} -Xcompiler=-fopenmp -c ${_probe} -o ${_folder}/probe.o --keep --keep-dir ${_folder}
    RESULT_VARIABLE _failed OUTPUT_QUIET ERROR_VARIABLE _errors)
  if(_failed)
    message(FATAL_ERROR "nvcc cannot compile ${_probe} with the Kokkos in ${Kokkos_DIR}:\n${_errors}")
  endif()

  file(STRINGS ${_folder}/probe.o _host REGEX "kozero_host [0-9 ]+")
  string(REGEX REPLACE ".*kozero_host ([0-9 ]+).*" "\\1" _host "${_host}")
  file(GLOB _ptx ${_folder}/*.ptx)
  file(READ ${_ptx} _ptx)
  string(REGEX MATCH "kozero_after_vector_param_0\\[([0-9]+)\\]" _found "${_ptx}")
  set(_device ${CMAKE_MATCH_1})
  foreach(member vector matrix owner)
    string(REGEX MATCH "kozero_after_${member}_param_0\\+([0-9]+)\\]" _found "${_ptx}")
    list(APPEND _device ${CMAKE_MATCH_1})
  endforeach()
  string(REGEX REPLACE "0*([0-9]+)" "\\1" _host "${_host}")
  list(JOIN _device " " _device)
  if(NOT _host STREQUAL _device)
    message(FATAL_ERROR
      "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR}, nvcc ${CMAKE_CUDA_COMPILER_VERSION}: host and device lay out kernel arguments "
      "differently (size and offsets of a struct of Views: host ${_host}, device ${_device}), so that no kernel would work. "
      "Take Kokkos 4.7.02, or the one that cmake/install_kokkos.sh cuda builds.")
  endif()
  set(KOZERO_KERNEL_ARGUMENTS ${_key} CACHE INTERNAL "What kernel_arguments.cu was last compiled with, and found right")
  message(STATUS "Kernel arguments: host and device agree (${_host})")
endif()
