// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_shard.hpp: a file of token ids in llm.c's format, mapped into memory.
//   int32 header[256] = {magic, version, number of tokens, 0 ...}, then the ids, little endian
//   magic 20240520, version 1: uint16 ids        magic 20240801, version 7: uint32 ids
// A file is never trusted: size, magic, version and count must agree when it is opened, ids must be below the
// vocabulary's size when they are read. Throws Error(input) naming the file and the reason.
// Karpathy, llm.c, dev/data/data_common.py.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include <kozero/core/views.hpp>
#include <kozero/io/mapped_file.hpp>

namespace kozero::io {

inline constexpr std::int64_t kShardHeaderBytes = 1024;

/// The two kinds of shard.
struct ShardFormat {
  std::int32_t magic;
  std::int32_t version;
  std::int64_t bytes_per_token;
};
inline constexpr ShardFormat kNarrowShard{20240520, 1, 2};
inline constexpr ShardFormat kWideShard{20240801, 7, 4};

/// The narrowest format that holds ids below `vocab`.
constexpr ShardFormat shard_format(std::int64_t vocab) { return vocab <= 65536 ? kNarrowShard : kWideShard; }

class TokenShard {
 public:
  /// `vocab`: ids read must be below it.
  TokenShard(const std::string& path, std::int64_t vocab);

  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Tokens [first, first + out.size()). A range outside the shard is an internal error.
  void read(std::int64_t first, std::span<Token> out) const;

 private:
  std::string path_;
  std::int64_t vocab_;
  MappedFile file_;
  ShardFormat format_{};
  std::int64_t num_tokens_ = 0;
};

}  // namespace kozero::io
