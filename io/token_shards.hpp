// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_shards.hpp: several token shards read as one sequence, in the order given.
//   sequence = shard 0 | shard 1 | ...
#pragma once
#include <string>
#include <vector>

#include <kozero/io/token_shard.hpp>

namespace kozero::io {

class TokenShards {
 public:
  /// Every shard keeps a descriptor: the process's soft limit of open files is raised where it is too low for them.
  /// Throws Error(input) where a file is not a shard, Error(deck) where `paths` is empty.
  TokenShards(const std::vector<std::string>& paths, std::int64_t vocab);

  [[nodiscard]] std::int64_t num_tokens() const { return ends_.back(); }
  /// Tokens [first, first + out.size()) of the sequence; a range outside it is an internal error. Throws Error(input)
  /// naming file and position of an id outside the vocabulary.
  void read(std::int64_t first, std::span<Token> out) const;
  [[nodiscard]] const std::vector<TokenShard>& shards() const { return shards_; }

 private:
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> ends_;  ///< position behind each shard's last token
};

}  // namespace kozero::io
