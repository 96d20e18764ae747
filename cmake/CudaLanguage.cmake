# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# CudaLanguage.cmake: turns CUDA on as a language. The host compiler is the one that compiles the C++ code.

# The architecture of Kokkos (install_kokkos.sh): kernels of another one would be compiled by the driver at each first start.
set(_architecture 80)
if(DEFINED ENV{KOZERO_CUDA_ARCH})
  set(_architecture $ENV{KOZERO_CUDA_ARCH})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${_architecture} CACHE STRING "The GPU architectures to compile for")
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "The host compiler of nvcc")
endif()
find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "KOZERO_CUDA=ON, but nvcc was not found: install the CUDA Toolkit (12 or newer) and put nvcc on the PATH")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know how to ask nvcc for C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
if(NOT CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES)  # nor the folders that the host compiler searches by itself
  set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # one runtime for a program and the libraries that it opens
find_package(CUDAToolkit 12 REQUIRED)
