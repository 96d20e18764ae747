// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// split_writer.hpp: the token shards of one side of the split, training or validation, and where documents begin.
//   FOLDER/train_000000.bin, train_000001.bin ...; each with train_000000.bin.documents: positions in
//   the shard at which documents begin, increasing, as little-endian uint64; shards of conversations also with
//   train_000000.bin.answers: the ranges of trained tokens, first and end of each, likewise
// Blocks of text have numbers, in the order of the corpus. A writer that finds the shards that a killed process has
// finished goes on behind them: it needs the tokens of later blocks alone, and gives the same bytes.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kozero/data/prepare.hpp>
#include <kozero/data/token_shard.hpp>

namespace kozero::data {

/// Where a finished shard ends in the corpus.
struct ShardEnd {
  std::int64_t block = 0;   ///< the block of its last token
  std::int64_t tokens = 0;  ///< of that block, in this shard and the ones before
  bool operator==(const ShardEnd&) const = default;
};

class SplitWriter {
 public:
  /// `finished`: shards that are there already. Throws Error(input) if one is not.
  SplitWriter(std::string folder, std::string side, std::int64_t vocab, std::int64_t shard_tokens,
              std::vector<ShardEnd> finished, bool has_answers);

  /// FOLDER/train_000000.bin
  static std::string path_of(const std::string& folder, const std::string& side, std::size_t number);

  /// Whether the finished shards have all tokens of the block.
  [[nodiscard]] bool has(std::int64_t block) const { return block < first_needed_; }
  /// Adds a block that !has(); `begins`: a document begins with its first token; `answers`: of the block's tokens.
  /// Throws Error(write).
  void append(std::int64_t block, std::span<const Token> tokens, bool begins, std::span<const TokenRange> answers = {});
  void count_bytes(std::size_t bytes) { split_.bytes += static_cast<std::int64_t>(bytes); }
  /// The tokens from this block on begin a new shard, the first of a further source.
  void begin_source(std::int64_t block);
  TokenSplit finish();

  /// What each source has, after finish().
  [[nodiscard]] std::vector<TokenSplit> finished_sources() const;
  /// Of all shards that are finished now.
  [[nodiscard]] const std::vector<ShardEnd>& ends() const { return ends_; }

 private:
  void open();
  void add_answers(std::span<const TokenRange> answers, std::int64_t num_tokens);
  void close(const ShardEnd& end);
  void take_finished(std::int64_t behind);
  [[nodiscard]] TokenSplit since_last_source() const;

  std::string folder_, side_;
  std::int64_t vocab_, shard_tokens_;
  std::vector<ShardEnd> ends_;
  std::size_t taken_ = 0;  ///< finished shards that split_ has
  std::int64_t first_needed_ = 0;
  std::unique_ptr<TokenShardWriter> shard_;
  std::vector<std::uint64_t> documents_;  ///< of the open shard
  bool has_answers_;
  std::vector<std::uint64_t> answers_;  ///< of the open shard
  ShardEnd last_;                       ///< of the last token
  TokenSplit split_;
  std::vector<TokenSplit> sources_;  ///< finished ones
};

}  // namespace kozero::data
