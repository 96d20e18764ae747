# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Summary.cmake: prints what was configured.

get_property(_folders GLOBAL PROPERTY KOZERO_FOLDERS)
list(JOIN _folders " " _folders)
list(JOIN Kokkos_DEVICES " " _devices)
message(STATUS "KoZeRO ${PROJECT_VERSION}")
message(STATUS "  build      ${CMAKE_BUILD_TYPE}, -march=${KOZERO_MARCH}, sanitizers: ${KOZERO_SANITIZE}")
set(_launcher none)
if(CMAKE_CXX_COMPILER_LAUNCHER)
  list(GET CMAKE_CXX_COMPILER_LAUNCHER -1 _launcher)
endif()
message(STATUS "  compiler   ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, launcher: ${_launcher}")
if(KOZERO_CUDA)
  message(STATUS "  CUDA       ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}, NCCL's header in ${KOZERO_NCCL_INCLUDE}")
  message(STATUS "  attention  cuDNN's front end: ${KOZERO_CUDNN_FRONTEND_INCLUDE}")
endif()
message(STATUS "  Kokkos     ${Kokkos_VERSION} (${_devices}) ${Kokkos_DIR}")
message(STATUS "  MPI        ${MPI_CXX_VERSION} ${MPIEXEC_EXECUTABLE}")
message(STATUS "  HDF5       ${HDF5_VERSION}")
message(STATUS "  oneDNN     ${dnnl_VERSION}")
message(STATUS "  Arrow      ${Arrow_VERSION}")
message(STATUS "  tests      ${KOZERO_TESTS}, Catch2 ${Catch2_VERSION}")
message(STATUS "  folders    ${_folders}")
