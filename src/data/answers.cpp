// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// answers.cpp: looks up the ranges of trained tokens.
#include "src/data/answers.hpp"
#include <algorithm>

#include <kozero/core/batch.hpp>

namespace kozero::data {

template <class Visit>
void Answers::visit_ranges(std::int64_t first, std::int64_t count, const Visit& visit) const {
  auto range = std::ranges::upper_bound(*ranges_, first, {}, &TokenRange::end);
  for (; range != ranges_->end() && range->first < first + count; ++range) {
    visit(std::max(range->first - first, std::int64_t{0}), std::min(range->end - first, count));
  }
}

std::int64_t Answers::count(std::int64_t first, std::int64_t count) const {
  if (!ranges_) return count;
  std::int64_t sum = 0;
  visit_ranges(first, count, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  return sum;
}

void Answers::ignore_others(std::int64_t first, std::span<Token> targets) const {
  if (!ranges_) return;
  auto rest = targets.begin();
  visit_ranges(first, std::ssize(targets), [&](std::int64_t begin, std::int64_t end) {
    std::fill(rest, targets.begin() + begin, kIgnoredTarget);
    rest = targets.begin() + end;
  });
  std::fill(rest, targets.end(), kIgnoredTarget);
}

}  // namespace kozero::data
