// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// content_hashes.hpp: XXH3-128 of files and folders that a command compares more than once.
//   a file: of its bytes, or of the hashes that a token shard records      a folder: of all files below it, by path
// A file is read again only if its size or its time of writing changed, so that a comparison costs a stat(2) per file.
#pragma once
#include <map>
#include <string>

#include "io/posix/file.hpp"

namespace kozero::commands {

class ContentHashes {
 public:
  /// 32 hexadecimal digits. Throws Error(input) if a file cannot be read.
  std::string of(const std::string& path);
  /// The last file that had other bytes than before; "" if none had.
  [[nodiscard]] const std::string& changed() const { return changed_; }

 private:
  struct Known {
    io::FileDescriptor::Stamp stamp;
    std::string hash;
  };

  std::string of_file(const std::string& path);
  std::string of_folder(const std::string& path);

  std::map<std::string, Known> known_;
  std::string changed_;
};

}  // namespace kozero::commands
