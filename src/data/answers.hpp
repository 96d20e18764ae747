// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// answers.hpp: which targets of conversations count in the loss: those that are tokens of answers.
//   target of position t = token t+1, which counts if it is inside one of the ranges of SHARD.answers
// Tokens of shards without .answers, which are other text, all count.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <kozero/data/token_shard.hpp>

namespace kozero::data {

class Answers {
 public:
  explicit Answers(const TokenShards& shards) : ranges_(shards.answers()) {}

  /// Whether the tokens are of conversations.
  [[nodiscard]] bool exist() const { return ranges_.has_value(); }
  /// How many of the tokens [first, first + count) of the sequence count.
  [[nodiscard]] std::int64_t count(std::int64_t first, std::int64_t count) const;
  /// Makes those of the targets, which are tokens [first, first + size), ignored that do not count.
  void ignore_others(std::int64_t first, std::span<Token> targets) const;

 private:
  /// Calls visit(begin, end) for each range of counted tokens among [first, first + count), relative to `first`.
  template <class Visit>
  void visit_ranges(std::int64_t first, std::int64_t count, const Visit& visit) const;

  std::optional<std::vector<TokenRange>> ranges_;  ///< increasing
};

}  // namespace kozero::data
