# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# CompilerCache.cmake: compiles through ccache where it is installed and no launcher was chosen. The sloppiness is what
# ccache needs to cache sources with precompiled headers (PrecompiledHeaders.cmake): it reads no macro of the header and
# no time of a file, but still the contents of all.

find_program(KOZERO_CCACHE ccache)
if(KOZERO_CCACHE)
  set(_launcher ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${KOZERO_CCACHE})
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${_launcher})
    endif()
  endforeach()
endif()
