// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// named_file.cpp: the hashes and stamps of the files that a command has read, by path.
#include <map>
#include <mutex>

#include <kozero/core/error.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/named_file.hpp"

namespace kozero::io {
namespace {

struct Read {
  std::mutex mutex;
  bool compares = false;
  std::map<std::string, std::string> identities;  // path -> hash, or stamp
};

Read& read_files() {
  static Read files;
  return files;
}

void compare(const std::string& path, const std::string& identity) {
  Read& files = read_files();
  const std::scoped_lock lock(files.mutex);
  if (!files.compares) return;
  const auto [known, is_first] = files.identities.emplace(path, identity);
  if (is_first || known->second == identity) return;
  throw Error(Failure::input, path + ": it changed after this command had read it; start the command again");
}

}  // namespace

NamedFiles::NamedFiles() { read_files().compares = true; }

NamedFiles::~NamedFiles() {
  read_files().compares = false;
  read_files().identities.clear();
}

std::string read_named_file(const std::string& path, std::int64_t limit) {
  std::string bytes = read_whole_file(path, limit);
  require_same_bytes(path, bytes);
  return bytes;
}

void require_same_bytes(const std::string& path, std::string_view bytes) { compare(path, xxh3_128(bytes)); }

void require_same_stamp(const std::string& path, const FileDescriptor::Stamp& stamp) {
  compare(path,
          std::to_string(stamp.size) + " " + std::to_string(stamp.seconds) + "." + std::to_string(stamp.nanoseconds));
}

}  // namespace kozero::io
