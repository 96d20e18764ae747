# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# BuildFacts.cmake: kozero_build_facts(<target> <library>...) lets the sources of <target> include build_facts.hpp:
# version, commit, compiler, libraries and mpiexec of this build. Run with -P it writes that header. A build runs it after a
# commit, a checkout, or a change of a source of the target or of a library; the file changes only with its text.
#   commit: of the sources, 12 digits; "+changes" behind it where tracked files
#           differed when it last ran; "unknown" outside of git

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(_build_facts_script ${CMAKE_CURRENT_LIST_FILE})

  function(kozero_build_facts target)
    set(folder ${PROJECT_BINARY_DIR}/build_facts)
    list(JOIN Kokkos_DEVICES " " devices)
    set(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
    if(KOZERO_MARCH)
      string(APPEND compiler ", -march=${KOZERO_MARCH}")
    endif()
    if(KOZERO_SANITIZE)
      string(APPEND compiler ", -fsanitize=${KOZERO_SANITIZE}")
    endif()
    set(cuda "")
    set(architecture "")
    if(KOZERO_CUDA)
      set(cuda ${CMAKE_CUDA_COMPILER_VERSION})
      list(GET CMAKE_CUDA_ARCHITECTURES 0 architecture)
    endif()
    list(JOIN KOZERO_MPIEXEC " " mpiexec)
    # Both change with every commit and checkout. In a worktree .git is a file that names another folder.
    set(commit_files "")
    foreach(name HEAD logs/HEAD)
      execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse --git-path ${name}
                      OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(file)
        get_filename_component(file "${file}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
      endif()
      if(EXISTS "${file}")
        list(APPEND commit_files ${file})
      endif()
    endforeach()
    get_target_property(sources ${target} SOURCES)
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    file(GLOB headers ${CMAKE_CURRENT_SOURCE_DIR}/*.hpp)
    list(APPEND sources ${headers} ${PROJECT_SOURCE_DIR}/src/main.cpp)
    add_custom_command(OUTPUT ${folder}/build_facts.hpp VERBATIM
      DEPENDS ${commit_files} ${sources} ${ARGN} ${_build_facts_script}
      COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DHEADER=${folder}/build_facts.hpp
              -DVERSION=${PROJECT_VERSION} "-DCOMPILER=${compiler}" "-DKOKKOS=${Kokkos_VERSION} (${devices})" -DCUDA=${cuda}
              "-DMPIEXEC=${mpiexec}"
              -DARCHITECTURE=${architecture}
              -P ${_build_facts_script})
    target_sources(${target} PRIVATE ${folder}/build_facts.hpp)
    target_include_directories(${target} PRIVATE ${folder})
  endfunction()
  return()
endif()

find_program(GIT git)
set(commit unknown)
# The sources may be a part of another repository, which does not have them.
execute_process(COMMAND ${GIT} -C ${SOURCE} ls-files --error-unmatch CMakeLists.txt src/main.cpp
                RESULT_VARIABLE untracked OUTPUT_QUIET ERROR_QUIET)
if(GIT AND untracked EQUAL 0)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} status --porcelain --untracked-files=no .
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "+changes")
  endif()
endif()

set(text "// Written by cmake/BuildFacts.cmake.\n#pragma once\nnamespace kozero::build_facts {\n")
foreach(fact VERSION COMMIT COMPILER KOKKOS CUDA ARCHITECTURE MPIEXEC)
  string(SUBSTRING ${fact} 0 1 first)
  string(SUBSTRING ${fact} 1 -1 rest)
  string(TOLOWER ${rest} rest)
  set(value "${${fact}}")
  if(fact STREQUAL COMMIT)
    set(value ${commit})
  endif()
  string(APPEND text "inline constexpr const char* k${first}${rest} = \"${value}\";\n")
endforeach()
string(APPEND text "}\n")
set(before "")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${HEADER} "${text}")
endif()
