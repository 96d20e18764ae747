# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# NcclLibrary.cmake: external::nccl, the header of NCCL, the collectives between NVIDIA GPUs: our declarations of its calls are
# checked against it. The library itself is opened at run time (src/distributed/nccl/nccl_connection.cpp) and not linked.

find_path(KOZERO_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(KOZERO_NCCL_INCLUDE)
  add_library(external::nccl INTERFACE IMPORTED)
  target_include_directories(external::nccl INTERFACE ${KOZERO_NCCL_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
else()
  kozero_missing("NCCL (2.18 or newer)" DEBIAN libnccl-dev SPACK nccl)
endif()
