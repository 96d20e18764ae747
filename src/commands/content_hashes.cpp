// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// content_hashes.cpp: reads files in parts and remembers their hashes.
#include <filesystem>
#include <set>
#include <vector>

#include "io/posix/block_hashes.hpp"
#include "src/commands/content_hashes.hpp"

namespace kozero::commands {
std::string ContentHashes::of(const std::string& path) { return io::is_folder(path) ? of_folder(path) : of_file(path); }

std::string ContentHashes::of_file(const std::string& path) {
  const io::FileDescriptor file(path, io::FileDescriptor::Use::read);
  const io::FileDescriptor::Stamp stamp = file.stamp();
  const auto known = known_.find(path);
  if (known != known_.end() && known->second.stamp == stamp) return known->second.hash;
  const auto recorded = io::read_shard_hashes(path);
  const std::string hash = recorded ? io::hash_of_hashes(recorded->blocks) : io::xxh3_128_of_file(file);
  if (known != known_.end() && known->second.hash != hash) changed_ = path;
  known_[path] = {stamp, hash};
  return hash;
}

std::string ContentHashes::of_folder(const std::string& path) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.insert(entry.path().string());
  }
  std::vector<std::string> hashes;
  for (const auto& file : files) hashes.push_back(of_file(file));
  return io::hash_of_hashes(hashes);
}

}  // namespace kozero::commands
