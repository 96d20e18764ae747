// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// answers.hpp: the trained tokens of a sequence of conversations. Only targets that are such tokens count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <kozero/core/batch.hpp>
#include <kozero/data/token_shard.hpp>

namespace kozero::data {

class Answers {
 public:
  /// `ranges`: of trained tokens, increasing.
  explicit Answers(std::vector<TokenRange> ranges) : ranges_(std::move(ranges)) {
    std::int64_t count = 0;
    for (const auto& range : ranges_) {
      before_.push_back(count);
      count += range.end - range.first;
    }
  }
  /// Of the shards; null if these are no conversations. Throws Error(input) as TokenShards::answers().
  static std::shared_ptr<const Answers> of(const TokenShards& shards) {
    auto ranges = shards.answers();
    return ranges ? std::make_shared<const Answers>(*std::move(ranges)) : nullptr;
  }

  /// Trained tokens among [first, end).
  [[nodiscard]] std::int64_t count(std::int64_t first, std::int64_t end) const {
    return count_before(end) - count_before(first);
  }
  /// `targets` are the tokens from `first` on: those that are not trained are ignored.
  void keep_trained(std::int64_t first, std::span<Token> targets) const {
    const auto end = first + static_cast<std::int64_t>(targets.size());
    std::int64_t position = first;
    const auto ignore_to = [&](std::int64_t behind) {
      for (; position < behind; ++position) targets[static_cast<std::size_t>(position - first)] = kIgnoredTarget;
    };
    for (auto range = first_ending_behind(first); range != ranges_.end() && range->first < end; ++range) {
      ignore_to(range->first);
      position = std::min(range->end, end);
    }
    ignore_to(end);
  }

 private:
  [[nodiscard]] std::vector<TokenRange>::const_iterator first_ending_behind(std::int64_t position) const {
    return std::ranges::upper_bound(ranges_, position, {}, &TokenRange::end);
  }
  [[nodiscard]] std::int64_t count_before(std::int64_t position) const {
    const auto range = first_ending_behind(position);
    if (range == ranges_.end()) return ranges_.empty() ? 0 : before_.back() + ranges_.back().end - ranges_.back().first;
    return before_[static_cast<std::size_t>(range - ranges_.begin())] +
           std::max<std::int64_t>(0, position - range->first);
  }

  std::vector<TokenRange> ranges_;
  std::vector<std::int64_t> before_;  ///< trained tokens before each range
};

}  // namespace kozero::data
