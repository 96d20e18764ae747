# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# CudnnFrontend.cmake: external::cudnn_frontend, headers alone, if cuDNN's, CUDA's and its front end's (new enough to
# describe a GPU) are found: where CMake looks, or where cmake/install_nvidia_wheels.sh put them in the user's cache.
# cuDNN itself is opened at run time. Without KOZERO_CUDA only tests use it.

execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_nvidia_wheels.sh --print-prefix
                OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(_toolkit HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(KOZERO_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_prefix}/include)
find_path(KOZERO_CUDNN_INCLUDE cudnn.h ${_toolkit})
find_path(KOZERO_CUDA_RUNTIME_INCLUDE cuda_runtime.h ${_toolkit})
mark_as_advanced(KOZERO_CUDNN_FRONTEND_INCLUDE KOZERO_CUDNN_INCLUDE KOZERO_CUDA_RUNTIME_INCLUDE)
if(EXISTS ${KOZERO_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend/backend/device_properties.h AND KOZERO_CUDNN_INCLUDE AND
   KOZERO_CUDA_RUNTIME_INCLUDE)
  add_library(external::cudnn_frontend INTERFACE IMPORTED)
  target_include_directories(external::cudnn_frontend SYSTEM INTERFACE
    ${KOZERO_CUDNN_FRONTEND_INCLUDE} ${KOZERO_CUDNN_INCLUDE} ${KOZERO_CUDA_RUNTIME_INCLUDE})
  target_link_libraries(external::cudnn_frontend INTERFACE ${CMAKE_DL_LIBS})
endif()
