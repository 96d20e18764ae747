// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// source_hashes.hpp: hashes of the files of which tokens were made, and their comparison when a file is read again.
//   a file that is read for tokens -> XXH3-128 of its bytes -> FOLDER/sources.json, beside tokens.json
//   read again with the path, size and time of a file there, and other bytes: damaged, refused
//   read again with its path and size, another time and other bytes: changed, said
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/text_files.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"

namespace kozero::data {

struct SourceHash {
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  ///< TextFile::modified
  std::string xxh3;           ///< XXH3-128, 32 hexadecimal digits
};

/// Hashes the files of a corpus one behind the other. A file's bytes are read a second time directly behind the first
/// one, when the system has them in memory.
class SourceHashing {
 public:
  /// Compares with what sources.json has in the folder `tokens`, and in the folders in it.
  SourceHashing(const std::vector<TextFile>& files, const std::string& tokens,
                std::function<void(const std::string&)> say);

  /// The corpus is read up to byte `offset`, counted from its beginning. Throws Error(input) if a file is damaged, or
  /// if its size changed since it was listed.
  void advance(std::int64_t offset);
  /// All of it is read: writes FOLDER/sources.json. Throws as advance(), and Error(write).
  void finish(const std::string& folder);

 private:
  void hash_to(std::int64_t end);
  void end_file();

  const std::vector<TextFile>& files_;
  std::function<void(const std::string&)> say_;
  std::multimap<std::string, SourceHash> known_;  ///< by absolute path
  std::vector<SourceHash> hashes_;                ///< of the files that are done
  std::int64_t begin_ = 0;                        ///< of the present file in the corpus
  std::optional<io::FileDescriptor> file_;
  io::RunningHash hash_;
  std::int64_t done_ = 0;  ///< bytes of the present file
};

}  // namespace kozero::data
