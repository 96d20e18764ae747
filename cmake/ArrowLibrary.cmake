# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# ArrowLibrary.cmake: external::parquet, Arrow's reader of Parquet files, if it is found: where CMake looks, or where
# cmake/install_arrow.sh put it in the user's cache. With KOZERO_ARROW=OFF, or where there is none, the program refuses
# Parquet files.

option(KOZERO_ARROW "Read Parquet files with Arrow, if it is there" ON)
set(Arrow_VERSION "none")
if(NOT KOZERO_ARROW)
  return()
endif()
find_package(Parquet 20 QUIET CONFIG)
if(TARGET Parquet::parquet_shared)
  add_library(external::parquet ALIAS Parquet::parquet_shared)
  return()
endif()
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_arrow.sh --print-prefix
                OUTPUT_VARIABLE _prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND EXISTS ${_prefix}/lib/libparquet.so)
  get_filename_component(Arrow_VERSION ${_prefix} NAME)
  set(_libraries ${_prefix}/lib)
  if(NOT KOZERO_PACKAGE)
    # Install.cmake copies these into the installed tree. By a link in the build folder, since CMake writes link folders
    # outside of it, such as a user's cache, into the installed program.
    file(GLOB KOZERO_ARROW_COPIED ${_prefix}/lib/*.so.*)
    file(GLOB KOZERO_ARROW_LICENSES ${_prefix}/doc/*)
    set(_libraries ${CMAKE_BINARY_DIR}/arrow)
    file(CREATE_LINK ${_prefix}/lib ${_libraries} SYMBOLIC)
  endif()
  add_library(external::parquet INTERFACE IMPORTED)
  set_target_properties(external::parquet PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${_prefix}/include
    INTERFACE_LINK_LIBRARIES "${_libraries}/libparquet.so;${_libraries}/libarrow.so")
endif()
