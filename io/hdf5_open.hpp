// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// hdf5_open.hpp: opens an HDF5 file on this process.
// Objects of 256 KiB and more start on 1 MiB borders, or those of a user block;
// the file is readable by HDF5 1.8 and newer.
#pragma once
#include <string>

#include <kozero/io/hdf5_handle.hpp>

namespace kozero::io {

enum class Hdf5Access { read, create };  ///< create: an existing file is emptied

/// "1.10.8", of the library that runs.
std::string hdf5_version();

/// `user_block`: bytes that HDF5 leaves free at a new file's beginning, 0 or a power of 2 from 512.
/// Throws Error(input) when reading fails, Error(write) when creating does.
Hdf5Handle open_hdf5(const std::string& path, Hdf5Access access, std::int64_t user_block);

}  // namespace kozero::io
