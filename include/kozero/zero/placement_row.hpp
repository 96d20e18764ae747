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

/// How micro-steps are added up: `local` adds full gradients and reduces once; `reduced` adds reduced shards.
enum class Accumulation { local, reduced };

/// What `zero.accumulation` = auto | local | reduced means for a stage. Throws Error(deck) for local where gradients
/// are sharded: a full gradient is never kept there.
Accumulation accumulation_of(const std::string& name, int stage);

}  // namespace kozero::zero
