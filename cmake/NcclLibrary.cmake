# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# NcclLibrary.cmake: external::nccl, the collectives between NVIDIA GPUs, from the CUDA toolkit's folder or the system.

find_path(KOZERO_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(KOZERO_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(KOZERO_NCCL_INCLUDE AND KOZERO_NCCL_LIBRARY)
  add_library(external::nccl INTERFACE IMPORTED)
  target_include_directories(external::nccl INTERFACE ${KOZERO_NCCL_INCLUDE})
  target_link_libraries(external::nccl INTERFACE ${KOZERO_NCCL_LIBRARY})
else()
  kozero_missing("NCCL (2.18 or newer)" DEBIAN libnccl-dev SPACK nccl)
endif()
