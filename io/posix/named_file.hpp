// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// named_file.hpp: files that a user names and that one command reads at several places: decks, tokenizers, config.json,
// adapters, safetensors.
//   const NamedFiles files;              in main, while a command runs
//   read_named_file(path, limit)         at each place
// While a NamedFiles exists, a file that is read again must be the one that was read first. Otherwise the command would
// check one file and compute with another. Files that the program itself changes, such as a run's, are not read so.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "io/posix/file.hpp"

namespace kozero::io {

class NamedFiles {
 public:
  NamedFiles();
  ~NamedFiles();
  NamedFiles(const NamedFiles&) = delete;
  NamedFiles& operator=(const NamedFiles&) = delete;
};

/// read_whole_file(). Throws Error(input) naming the file too if its bytes are not those of its first reading.
std::string read_named_file(const std::string& path, std::int64_t limit);

/// Throws Error(input) naming the file if its bytes are not those of its first reading.
void require_same_bytes(const std::string& path, std::string_view bytes);

/// For a file that is too large to be compared by its bytes: throws Error(input) if an earlier call had another stamp.
void require_same_stamp(const std::string& path, const FileDescriptor::Stamp& stamp);

}  // namespace kozero::io
