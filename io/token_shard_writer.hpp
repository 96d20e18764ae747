// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_shard_writer.hpp: writes one shard (format: token_shard.hpp), buffered, under a temporary name until closed.
// Throws Error(write) naming the file. A writer that is destroyed without close() leaves nothing.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/views.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/token_shard.hpp>

namespace kozero::io {

class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, std::int64_t vocab);
  ~TokenShardWriter();
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  /// Ids outside [0, vocab) and more than 2^31 - 1 tokens are internal errors.
  void append(std::span<const Token> tokens);
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  /// Writes the count, syncs, writes the shard's hashes (shard_hashes.hpp), and gives the file its name.
  void close();

 private:
  void flush();

  std::string path_;
  std::int64_t vocab_;
  ShardFormat format_;
  std::optional<FileDescriptor> file_;
  std::string buffer_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace kozero::io
