# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# CompilerCache.cmake: compiles through ccache where it is installed and no launcher was chosen.

find_program(KOZERO_CCACHE ccache)
if(KOZERO_CCACHE)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${KOZERO_CCACHE})
    endif()
  endforeach()
endif()
