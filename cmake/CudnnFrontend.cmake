# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# CudnnFrontend.cmake: external::cudnn_frontend, headers alone, where both cuDNN's and its front end's are found: where CMake
# looks, or where cmake/install_cudnn_frontend.sh put them in the user's cache. cuDNN itself is opened at run time.

execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_cudnn_frontend.sh --print-prefix
                OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_path(KOZERO_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_prefix}/include)
find_path(KOZERO_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(KOZERO_CUDNN_FRONTEND_INCLUDE AND KOZERO_CUDNN_INCLUDE)
  add_library(external::cudnn_frontend INTERFACE IMPORTED)
  target_include_directories(external::cudnn_frontend SYSTEM INTERFACE
    ${KOZERO_CUDNN_FRONTEND_INCLUDE} ${KOZERO_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(external::cudnn_frontend INTERFACE CUDA::cudart ${CMAKE_DL_LIBS})
endif()
