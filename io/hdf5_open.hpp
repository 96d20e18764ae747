// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// hdf5_open.hpp: opens an HDF5 file, on one process or by all ranks of a communicator together.
// Objects of 256 KiB and more start on 1 MiB borders; the file is readable by HDF5 1.8 and newer.
#pragma once
#include <string>

#include <kozero/io/hdf5_handle.hpp>

namespace kozero::io {

enum class Hdf5Access { read, create };  ///< create: an existing file is emptied

/// `mpi_handle`: an `MPI_Comm*` whose ranks all make this call, or nullptr for this process alone.
/// Throws Error(input) when reading fails, Error(write) when creating does.
Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, const void* mpi_handle);

}  // namespace kozero::io
