# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# Hdf5.cmake: external::hdf5, the C library of HDF5 1.10 or newer, built with this MPI or with none: each rank writes its own
# bytes of the one file, and no call of the library is collective.
# Debian keeps one HDF5 for each MPI side by side and tells them apart by their pkg-config names only.

if(NOT HDF5_ROOT AND NOT DEFINED ENV{HDF5_ROOT} AND "${MPI_C_LIBRARIES}" MATCHES "/libmpich")
  pkg_check_modules(KOZERO_HDF5 QUIET IMPORTED_TARGET hdf5-mpich>=1.10)
endif()
if(KOZERO_HDF5_FOUND)
  add_library(external::hdf5 ALIAS PkgConfig::KOZERO_HDF5)
  set(HDF5_VERSION ${KOZERO_HDF5_VERSION})
else()
  find_package(HDF5 1.10 QUIET COMPONENTS C)
  if(NOT HDF5_FOUND)
    kozero_missing("HDF5 (1.10 or newer)" DEBIAN libhdf5-mpich-dev SPACK hdf5)
  else()
    add_library(external::hdf5 INTERFACE IMPORTED)
    target_include_directories(external::hdf5 INTERFACE ${HDF5_INCLUDE_DIRS})
    target_compile_definitions(external::hdf5 INTERFACE ${HDF5_DEFINITIONS})
    target_link_libraries(external::hdf5 INTERFACE ${HDF5_LIBRARIES})
    if(HDF5_IS_PARALLEL)
      target_link_libraries(external::hdf5 INTERFACE MPI::MPI_C)
    endif()
  endif()
endif()
