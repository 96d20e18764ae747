# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# OneDnn.cmake: DNNL::dnnl, oneDNN 2.6 or newer (3 too), by its header and library: Debian's own CMake file of it stops
# where OpenCL's headers are not installed, which nothing here needs. `bench kernels` compares our products with
# oneDNN's, and nothing else uses it. With KOZERO_ONEDNN=OFF there is none to compare with.

option(KOZERO_ONEDNN "Compare the matrix products of `bench kernels` with oneDNN's" ON)
if(NOT KOZERO_ONEDNN)
  set(dnnl_VERSION "not used")
  return()
endif()
find_path(KOZERO_DNNL_INCLUDE oneapi/dnnl/dnnl_version.h)
find_library(KOZERO_DNNL_LIBRARY dnnl)
set(dnnl_VERSION 0)
if(KOZERO_DNNL_INCLUDE)
  file(STRINGS ${KOZERO_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h _version REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" dnnl_VERSION "${_version}")
endif()
if(KOZERO_DNNL_LIBRARY AND dnnl_VERSION VERSION_GREATER_EQUAL 2.6)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${KOZERO_DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${KOZERO_DNNL_INCLUDE})
else()
  kozero_missing("oneDNN (2.6 or newer)" DEBIAN libdnnl-dev SPACK onednn)
endif()
