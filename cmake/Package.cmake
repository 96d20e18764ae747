# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Package.cmake: what `cpack -G DEB` in a build folder makes: a Debian package of the programs, decks and documents, for
# the Debian that it was built on. dpkg-shlibdeps computes the packages of linked libraries; the launcher of this MPI is
# added. Build with KOZERO_MARCH=x86-64-v3 if the package is for other processors than this machine's.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kozero)
if(KOZERO_CUDA)
  set(CPACK_PACKAGE_NAME kozero-cuda)
endif()
set(CPACK_PACKAGE_VENDOR "The KoZeRO authors")
set(CPACK_PACKAGE_CONTACT "The KoZeRO authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_DESCRIPTION "Decks are in /usr/share/kozero/inputs.")
if(KOZERO_MARCH)
  string(APPEND CPACK_PACKAGE_DESCRIPTION " Compiled with -march=${KOZERO_MARCH}.")
endif()
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};kozero;programs;/")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(KOZERO_ARROW_COPIED)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/arrow)
endif()
if("${MPI_CXX_LIBRARIES}" MATCHES "/libmpich")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS mpich)
elseif("${MPI_CXX_LIBRARIES}" MATCHES "/libmpi(_cxx)?\\.so")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS gnuplot-nox)
include(CPack)
