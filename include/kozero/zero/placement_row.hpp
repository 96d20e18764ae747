// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// placement_row.hpp: a ZeRO stage is a row of three placements.
//   stage   parameters   gradients at rest                                optimizer state
//     0     replicated   replicated                                       replicated
//     1     replicated   partial: reduced into the shard before updates   sharded
//     2     replicated   sharded                                          sharded
//     3     sharded      sharded                                          sharded
// Rajbhandari, Rasley, Ruwase, He 2020, "ZeRO", arXiv:1910.02054.
#pragma once
#include <kozero/dist/distributed_array.hpp>

namespace kozero::zero {

struct PlacementRow {
  dist::Placement parameters;
  dist::Placement gradients;
  dist::Placement optimizer;
};

/// Throws Error(deck) for a stage that is not 0, 1, 2 or 3.
PlacementRow placement_row(int stage);

/// How the micro-steps of a step are added up.
///   ordered   each micro-step is reduced onto the shard: over a step the left fold over its granules
///   (train/data_set.hpp),
///             whatever the number of ranks
///   local     a rank adds its own micro-steps up, and one reduction ends the step: less traffic, for stages 0 and 1
enum class Accumulation { ordered, local };

/// Of `zero.accumulation`. Throws Error(deck) for local where gradients are sharded: no rank keeps a whole one there.
Accumulation accumulation_of(const std::string& name, int stage);

}  // namespace kozero::zero
