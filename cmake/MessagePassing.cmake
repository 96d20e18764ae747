# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# MessagePassing.cmake: finds MPI (3.1 or newer), and how to start ranks of it.
# Where the compiler wrapper on the PATH is Debian's, which several MPIs share, MPICH's is taken.
#   KOZERO_MPIEXEC          mpiexec and its flags, up to the number of ranks

find_program(KOZERO_MPICXX mpicxx)
if(NOT KOZERO_MPICXX MATCHES "^/usr/bin/" AND KOZERO_MPICXX)
  # A module's or Spack's own MPI: as it is.
elseif(EXISTS /usr/bin/mpicxx.mpich AND NOT MPI_HOME AND NOT DEFINED ENV{MPI_HOME})
  set(MPI_C_COMPILER /usr/bin/mpicc.mpich CACHE FILEPATH "The C compiler wrapper of MPI")
  set(MPI_CXX_COMPILER /usr/bin/mpicxx.mpich CACHE FILEPATH "The C++ compiler wrapper of MPI")
  set(MPIEXEC_EXECUTABLE /usr/bin/mpiexec.mpich CACHE FILEPATH "What starts ranks")
endif()

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.1 QUIET COMPONENTS C CXX)
if(NOT MPI_FOUND)
  kozero_missing("MPI (3.1 or newer)" DEBIAN "mpich libmpich-dev" SPACK mpich)
endif()

set(_mpiexec ${MPIEXEC_EXECUTABLE})
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE _version ERROR_QUIET)
if(_version MATCHES "Open MPI|OpenRTE|PRRTE")
  list(APPEND _mpiexec --allow-run-as-root --oversubscribe --bind-to none)  # ranks bind themselves (run.bind)
endif()
set(KOZERO_MPIEXEC "${_mpiexec}" CACHE INTERNAL "mpiexec and its flags, up to the number of ranks")
