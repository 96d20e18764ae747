// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block_hashes.hpp: XXH3-128 of every 16 MiB block of a file, the blocks shared out over ranks.
//   block b = bytes [b * kBlockBytes, min((b + 1) * kBlockBytes, size))        rank b mod n hashes it
// It tells an accident (a flipped bit, a file cut short) from the bytes that were written; it is no signature.
// XXH3: Y. Collet, xxHash 0.8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/dist/communicator.hpp>

namespace kozero::io {

inline constexpr std::int64_t kBlockBytes = std::int64_t{16} << 20;

/// A file's size and the hash of each of its blocks, 32 hexadecimal digits each.
struct FileHashes {
  std::int64_t size = 0;
  std::vector<std::string> blocks;
  bool operator==(const FileHashes&) const = default;
};

/// XXH3-128 as 32 hexadecimal digits.
std::string xxh3_128(std::string_view bytes);

/// Collective. Throws Error(input), seen by all ranks, where the file cannot be read.
FileHashes hash_blocks(dist::Communicator& comm, const std::string& path);

/// Collective. Throws Error(input), seen by all ranks, naming the file and its size or first block that is another.
void verify_blocks(dist::Communicator& comm, const std::string& path, const FileHashes& wanted);

}  // namespace kozero::io
