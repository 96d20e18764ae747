// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// merge_learner.hpp: learns the merges of byte-pair encoding from counted pieces.
//   repeat: join the pair of neighbours with the largest count over all pieces; of equal counts the smaller ids win
// No token is made twice: merges inside a string that no merge crosses go the same way wherever the string stands.
// Each join touches only the pieces that hold the pair; a heap with stale entries gives the next one.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

/// The ids that are joined: 0..255 are the bytes, 256 + r is what merge r makes.
using Merge = std::pair<Token, Token>;
using PieceCounts = std::map<std::string, std::int64_t>;

/// At most `num_merges` merges; fewer where no pair is met twice any more.
std::vector<Merge> learn_merges(const PieceCounts& pieces, int num_merges);

}  // namespace kozero::io
