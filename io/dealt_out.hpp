// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// dealt_out.hpp: independent pieces of work dealt out over the ranks, every result on every rank.
//   item i on rank i mod n; a result is `width` doubles
// An item is the work of one rank from begin to end, so its result does not depend on the number of ranks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include <kozero/dist/agreed.hpp>

namespace kozero::io {

/// work(item) -> std::vector<double> of `width` numbers; the results in the items' order. Collective. Throws what any
/// rank's work throws, seen by all ranks.
template <class Work>
std::vector<std::vector<double>> dealt_out(dist::Communicator& comm, std::size_t items, std::size_t width,
                                           const Work& work) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t rounds = (items + ranks - 1) / ranks;
  const auto mine = dist::agreed(comm, [&] {
    std::vector<double> numbers(rounds * width);
    for (std::size_t round = 0; round < rounds; ++round) {
      const std::size_t item = round * ranks + static_cast<std::size_t>(comm.rank());
      if (item >= items) break;
      const std::vector<double> result = work(item);
      std::copy(result.begin(), result.end(), numbers.begin() + static_cast<std::ptrdiff_t>(round * width));
    }
    return numbers;
  });
  const auto all = comm.gather_control(mine);
  std::vector<std::vector<double>> results;
  for (std::size_t item = 0; item < items; ++item) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>((item % ranks * rounds + item / ranks) * width);
    results.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return results;
}

}  // namespace kozero::io
