// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error.cpp: the nearest accepted name, for "did you mean".
//   d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i != b_j])       Levenshtein 1966
// A name is near when at most a third of the given letters, rounded up, would change.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <kozero/core/error.hpp>

namespace kozero {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& given, const std::string* first, const std::string* last) {
  std::size_t best = (given.size() + 2) / 3 + 1;
  std::string nearest;
  for (; first != last; ++first) {
    const std::size_t distance = edit_distance(given, *first);
    if (distance < best) {
      best = distance;
      nearest = *first;
    }
  }
  return nearest;
}

}  // namespace kozero
