// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// whole_file.hpp: files that are complete or absent.
//   write `path.partial`, fsync, rename to `path`, fsync the folder
// A reader, or the next run after a crash, never meets half a file under its own name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace kozero::io {

/// The name a file has while it is written.
std::string partial_name(const std::string& path);

/// Writes the bytes as described above, replacing an older file. Throws Error(write).
void write_whole_file(const std::string& path, std::string_view bytes);

/// Makes a file (or folder) that was written as partial_name(path) durable and gives it its name. Throws Error(write).
void publish(const std::string& path);

/// All bytes of a file. Throws Error(input) where it cannot be read or has more than `limit` bytes.
std::string read_whole_file(const std::string& path, std::int64_t limit);

}  // namespace kozero::io
