// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_shard.hpp: files of token ids: one shard, several shards as one sequence, and the writer. Written is llm.c's
// format; datatrove's and Megatron's are read too (src/data/token_formats.hpp).
//   int32 header[256] = {magic, version, number of tokens, 0 ...}, then the ids, little endian
//   magic 20240520, version 1: uint16 ids        magic 20240801, version 7: uint32 ids
//   sequence of several shards = shard 0 | shard 1 | ...
// A file is never trusted: size, magic, version and count must agree when it is opened, ids must be below the
// vocabulary's size when they are read. Throws Error(input) naming the file and the reason. The file stays open and is
// read by pread, so a file that shrinks or is removed meanwhile is an error like any other, and not a signal.
// Karpathy, llm.c, dev/data/data_common.py.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"

namespace kozero::data {

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

  // Of the whole file, header included. Any thread may call these beside read().
  [[nodiscard]] std::int64_t num_blocks() const;
  /// The hashes that were written with the shard (io/posix/block_hashes.hpp); none for a shard from elsewhere.
  [[nodiscard]] const std::optional<io::FileHashes>& recorded_hashes() const { return recorded_; }
  /// Reads a block and returns its XXH3-128. Throws Error(input) if it differs from the recorded hash, naming the
  /// block, or if an id is not below the vocabulary, naming its position. Ends early, with "", once `stop` is set.
  std::string check_block(std::int64_t block, const std::atomic<bool>& stop) const;
  /// XXH3-128 of the size and of four parts of 4 KiB spread evenly: tells other data at the cost of four reads, but not
  /// every change of a few bytes.
  [[nodiscard]] std::string sampled_hash() const;

 private:
  void read_bytes(std::span<char> bytes, std::int64_t offset) const;
  [[noreturn]] void refuse_id(std::int64_t position, std::int64_t id) const;

  std::string path_;
  std::int64_t vocab_;
  io::FileDescriptor file_;
  std::int64_t size_;
  std::int64_t header_bytes_ = 0;
  std::int64_t bytes_per_token_ = 0;
  std::int64_t num_tokens_ = 0;
  std::optional<io::FileHashes> recorded_;
};

/// Positions in the shard at which documents begin, as `kozero prepare` recorded them beside it (SHARD.documents:
/// little-endian uint64); none without that file. Throws Error(input) if they do not increase inside the shard.
std::optional<std::vector<std::int64_t>> recorded_documents(const TokenShard& shard);

/// Positions [first, end) of a shard or of another sequence of tokens.
struct TokenRange {
  std::int64_t first = 0, end = 0;
  bool operator==(const TokenRange&) const = default;
};

/// The ranges of trained tokens in a shard of conversations (SHARD.answers: little-endian uint64 pairs first, end,
/// increasing); nullopt without that file. Throws Error(input) if they do not increase inside the shard.
std::optional<std::vector<TokenRange>> recorded_answers(const TokenShard& shard);

/// Several token shards read as one sequence.
class TokenShards {
 public:
  /// Every shard has an open file: the process's soft limit of open files is raised if it is too low for them.
  /// Throws Error(input) if a file is not a shard, Error(deck) if `paths` is empty.
  /// `order`: the shards of the sequence, by their numbers; each occurs at least once, or more often. Empty: each shard
  /// once, in the order given.
  TokenShards(const std::vector<std::string>& paths, std::int64_t vocab, std::vector<std::size_t> order = {});

  [[nodiscard]] std::int64_t num_tokens() const { return ends_.back(); }
  /// Tokens [first, first + out.size()) of the sequence; a range outside it is an internal error. Throws Error(input)
  /// naming file and position of an id outside the vocabulary.
  void read(std::int64_t first, std::span<Token> out) const;
  [[nodiscard]] const std::vector<TokenShard>& shards() const { return shards_; }
  /// Positions in the sequence at which documents begin, increasing; the first is 0. Of a shard that does not record
  /// them all tokens are read: a document begins with `start`. Throws Error(input) as recorded_documents() and read().
  [[nodiscard]] std::vector<std::int64_t> documents(Token start) const;
  /// The trained tokens of the sequence, increasing; nullopt if no shard is of conversations. Throws Error(input) as
  /// recorded_answers(), and if only some shards are.
  [[nodiscard]] std::optional<std::vector<TokenRange>> answers() const;
  /// "0 1 0 1 2"; "" if each shard occurs once, in the order given.
  [[nodiscard]] std::string order() const;

 private:
  std::vector<TokenShard> shards_;
  std::vector<std::size_t> order_;  ///< of shards in the sequence
  std::vector<std::int64_t> ends_;  ///< position behind the last token of each shard in the sequence
};

/// Writes one shard, buffered, under a temporary name until closed. Throws Error(write) naming the file. A writer that
/// is destroyed without close() leaves nothing.
class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, std::int64_t vocab);
  ~TokenShardWriter();
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  /// Ids outside [0, vocab) and more than 2^31 - 1 tokens are internal errors.
  void append(std::span<const Token> tokens);
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  /// Writes the count, syncs, writes the shard's hashes (io/posix/block_hashes.hpp), and gives the file its name.
  void close();

 private:
  void flush();

  std::string path_;
  std::int64_t vocab_;
  ShardFormat format_;
  std::optional<io::FileDescriptor> file_;
  std::string buffer_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace kozero::data
