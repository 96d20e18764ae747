// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// disk_space.hpp: what is free where a file is about to be written, and whether one can be.
#pragma once
#include <cstdint>
#include <string>

namespace kozero::io {

/// Bytes that this user can still write to the file system of a folder, which need not exist yet (its parents are
/// asked). Where the file system does not tell, the largest number. Throws Error(write).
std::int64_t free_disk_bytes(const std::string& folder);

/// Throws Error(write) where this user cannot make a file in a folder, or where that is not there, in its nearest
/// parent that is. A file is made and removed.
void require_writable(const std::string& folder);

/// "takes 1.5 GiB (1612185600 bytes) and 12.0 GiB (12884901888 bytes) are free"
std::string space_text(std::int64_t needed, std::int64_t free);

}  // namespace kozero::io
