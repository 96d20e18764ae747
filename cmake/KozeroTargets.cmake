# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# KozeroTargets.cmake: the three kinds of target.
#   kozero_library(<folder> [SOURCES a.cpp ...] [HOST_SOURCES b.cpp ...] [PUBLIC_LINK ...] [PRIVATE_LINK ...]
#                  [PRECOMPILED kokkos|json|<folder whose are reused>])
#   kozero_executable(<name> SOURCES main.cpp LINK ...)
#   kozero_test(<name> SOURCES test_a.cpp ... LINK ... [LABELS unit] [RANKS 1 2 4] [TIMEOUT 300])
#
# Headers are included by their path from the root, "io/deck/schema.hpp", and those in include/ as <kozero/core/views.hpp>.
# Which folder may include which is in tests/style/check_layers.py; a wrong-way include fails the build (kozero_layers).
# In a CUDA build nvcc compiles every source, but for HOST_SOURCES, which must not include Kokkos.
# Tests define member functions that CHECK outside of their class: inside, CUDA 13.0's cudafe++ may never come back.

include(GNUInstallDirs)
include(KozeroOptions)
include(PrecompiledHeaders)

function(kozero_compile_as_cuda)
  if(KOZERO_CUDA)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  endif()
endfunction()

function(kozero_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PRECOMPILED" "SOURCES;HOST_SOURCES;PUBLIC_LINK;PRIVATE_LINK")
  set(roots $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/kozero-internal>)
  add_library(kozero_${folder} STATIC ${arg_SOURCES} ${arg_HOST_SOURCES})
  kozero_compile_as_cuda(${arg_SOURCES})
  target_include_directories(kozero_${folder} PUBLIC ${roots})
  target_link_libraries(kozero_${folder} PUBLIC ${arg_PUBLIC_LINK}
                        PRIVATE ${arg_PRIVATE_LINK} $<BUILD_INTERFACE:kozero_options>)
  set_target_properties(kozero_${folder} PROPERTIES EXPORT_NAME ${folder})
  if(TARGET kozero_${arg_PRECOMPILED})
    kozero_precompile(kozero_${folder} REUSE kozero_${arg_PRECOMPILED})
  elseif(arg_PRECOMPILED)
    kozero_precompile(kozero_${folder} CONTENT ${arg_PRECOMPILED})
  endif()
  add_library(kozero::${folder} ALIAS kozero_${folder})
  set_property(GLOBAL APPEND PROPERTY KOZERO_FOLDERS ${folder})
endfunction()

# With CUDA the program is called <name>-cuda, so that both can be installed side by side.
function(kozero_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${name} ${arg_SOURCES})
  kozero_compile_as_cuda(${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} kozero_options)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
                        INSTALL_RPATH_USE_LINK_PATH ON)
  if(KOZERO_ARROW_COPIED)
    set_target_properties(${name} PROPERTIES
      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/kozero;${CMAKE_INSTALL_RPATH}")
  endif()
  if(KOZERO_CUDA)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${name}-cuda)
  endif()
  install(TARGETS ${name} COMPONENT programs)
endfunction()

function(kozero_add_ctest name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABELS;TIMEOUT;PROCESSORS;THREADS" "COMMAND")
  if(CMAKE_CROSSCOMPILING_EMULATOR)  # 10 to 50 times slower
    math(EXPR arg_TIMEOUT "12 * ${arg_TIMEOUT}")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  # UCX fails at start if a network device vanishes meanwhile, such as a link of the tests with namespaces.
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS}
    ENVIRONMENT "OMP_NUM_THREADS=${arg_THREADS};OMP_PROC_BIND=false;UCX_NET_DEVICES=lo")
endfunction()

# Without RANKS one case, on 2 threads; with RANKS one case per count, each rank on 1 thread, labeled mpi.
function(kozero_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LINK;LABELS;RANKS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY KOZERO_TEST_PROGRAMS ${name})
  kozero_compile_as_cuda(${arg_SOURCES})
  # The libraries above the kernels hand their compiler options on; two kinds of test have others.
  if(arg_LINK MATCHES "kozero::(kernels|model|huggingface|train|plan|run|commands)")
    set(with_kernels _kernels)
  endif()
  if(NOT arg_LINK MATCHES "device_on_host|cudnn_frontend")
    kozero_precompile(${name} REUSE kozero_test_precompiled${with_kernels})
  endif()
  if(NOT arg_RANKS)
    target_link_libraries(${name} PRIVATE ${arg_LINK} kozero_test_main kozero_options)
    kozero_add_ctest(${name} LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2 THREADS 2 COMMAND ${name})
    return()
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LINK} kozero_test_main_mpi kozero_options)
  list(REMOVE_ITEM arg_LABELS unit)
  list(APPEND arg_LABELS mpi)
  foreach(ranks ${arg_RANKS})
    kozero_add_ctest(${name}.${ranks} LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${ranks} THREADS 1
                     COMMAND ${KOZERO_MPIEXEC} -n ${ranks} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
  endforeach()
endfunction()
