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
    # The build folder gets files of its own (hard links, or copies on another file system), so that programs start for
    # every user and without the cache. Install.cmake installs them.
    set(_libraries ${CMAKE_BINARY_DIR}/arrow)
    file(REMOVE_RECURSE ${_libraries})
    file(MAKE_DIRECTORY ${_libraries}/doc)
    set(KOZERO_ARROW_COPIED)
    set(KOZERO_ARROW_LICENSES)
    file(GLOB _files ${_prefix}/lib/*.so.* ${_prefix}/doc/*)
    foreach(_file ${_files})
      get_filename_component(_name ${_file} NAME)
      set(_list KOZERO_ARROW_LICENSES)
      set(_own ${_libraries}/doc/${_name})
      if(_name MATCHES "^(lib.*\\.so)\\.")
        set(_list KOZERO_ARROW_COPIED)
        set(_own ${_libraries}/${_name})
        file(CREATE_LINK ${_name} ${_libraries}/${CMAKE_MATCH_1} SYMBOLIC)
      endif()
      file(CREATE_LINK ${_file} ${_own} COPY_ON_ERROR)
      list(APPEND ${_list} ${_own})
    endforeach()
    set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
  endif()
  add_library(external::parquet INTERFACE IMPORTED)
  set_target_properties(external::parquet PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${_prefix}/include
    INTERFACE_LINK_LIBRARIES "${_libraries}/libparquet.so;${_libraries}/libarrow.so")
endif()
