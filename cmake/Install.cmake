# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Install.cmake: what `cmake --install BUILD --prefix PREFIX` writes. The tree may be moved afterwards.
#   bin/                 kozero and kozero-bench; of a CUDA build kozero-cuda and kozero-bench-cuda, and nothing else
#   lib/, include/       the layers up to train, for find_package(KoZeRO): kozero::train, kozero::zero, kozero::distributed ...
#   include/kozero-internal/   headers of io/ and kernels/ that the public ones include
#   lib/kozero/          Arrow's libraries, if they are from the user's cache (ArrowLibrary.cmake)
#   share/kozero/        inputs, and a program that trains by the libraries (example)      share/doc/kozero/ documents
#   share/modulefiles/   kozero, a modulefile for Lmod and Environment Modules
# The component `programs` is what a package has (Package.cmake); libraries and headers are the component `development`.
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs)
if(KOZERO_ARROW_COPIED)
  install(FILES ${KOZERO_ARROW_COPIED} DESTINATION ${CMAKE_INSTALL_LIBDIR}/kozero)
  install(FILES ${KOZERO_ARROW_LICENSES} DESTINATION ${CMAKE_INSTALL_DOCDIR}/arrow)
endif()
install(FILES cmake/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/kozero RENAME ${PROJECT_VERSION})
install(DIRECTORY inputs DESTINATION ${CMAKE_INSTALL_DATADIR}/kozero)
install(DIRECTORY tests/install/example DESTINATION ${CMAKE_INSTALL_DATADIR}/kozero COMPONENT development)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
include(Package)
if(KOZERO_CUDA)
  return()
endif()

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
get_property(folders GLOBAL PROPERTY KOZERO_FOLDERS)
list(REMOVE_ITEM folders run program commands bench)
foreach(folder ${folders})
  install(TARGETS kozero_${folder} EXPORT KoZeROTargets)
endforeach()
install(DIRECTORY include/kozero DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        PATTERN run EXCLUDE PATTERN program EXCLUDE PATTERN commands EXCLUDE)
install(DIRECTORY io kernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kozero-internal FILES_MATCHING PATTERN "*.hpp")

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/KoZeRO)
install(EXPORT KoZeROTargets NAMESPACE kozero:: DESTINATION ${_package})
configure_package_config_file(cmake/KoZeROConfig.cmake.in ${PROJECT_BINARY_DIR}/KoZeROConfig.cmake
                              INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/KoZeROConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/KoZeROConfig.cmake ${PROJECT_BINARY_DIR}/KoZeROConfigVersion.cmake
        cmake/ArrowLibrary.cmake cmake/Dependencies.cmake cmake/Hdf5.cmake cmake/KokkosLibrary.cmake cmake/MessagePassing.cmake cmake/OneDnn.cmake
        DESTINATION ${_package})
install(PROGRAMS cmake/install_arrow.sh cmake/install_kokkos.sh DESTINATION ${_package})
install(DIRECTORY cmake/patches DESTINATION ${_package})
