// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// placement_row.hpp: a ZeRO stage as a row of placements: of parameters, of gradients and of optimizer state.
//   stage   parameters   gradients at rest                                optimizer state
//     0     replicated   replicated                                       replicated
//     1     replicated   partial: reduced into the shard before updates   sharded
//     2     replicated   sharded                                          sharded
//     3     sharded      sharded                                          sharded
// Rajbhandari, Rasley, Ruwase, He 2020, "ZeRO", arXiv:1910.02054.
#pragma once
#include <array>
#include <string>

#include <kozero/core/choices.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/distributed_array.hpp>

namespace kozero::zero {

struct PlacementRow {
  distributed::Placement parameters;
  distributed::Placement gradients;
  distributed::Placement optimizer;
};

/// Throws Error(deck) for a stage that is not 0, 1, 2 or 3.
inline PlacementRow placement_row(int stage) {
  using distributed::Placement;
  constexpr std::array<PlacementRow, 4> kRows = {{
      {Placement::replicated, Placement::replicated, Placement::replicated},
      {Placement::replicated, Placement::partial, Placement::sharded},
      {Placement::replicated, Placement::sharded, Placement::sharded},
      {Placement::sharded, Placement::sharded, Placement::sharded},
  }};
  if (stage < 0 || stage > 3) {
    throw Error(Failure::deck, "zero.stage = " + std::to_string(stage) + ": accepted are 0, 1, 2, 3");
  }
  return kRows[static_cast<std::size_t>(stage)];
}

/// How the gradients of a step's micro-steps are summed. A granule is the sequences of one micro-step on one rank.
///   ordered   each micro-step is reduced onto the shard: the step's sum is a left fold over its granules, the same for
///             any number of ranks
///   local     each rank sums its own micro-steps, and one reduction ends the step: less traffic, for stages 0 and 1
enum class Accumulation { ordered, local };

/// "ordered", "local".
constexpr const char* name_of(Accumulation accumulation) {
  return kAccumulations[static_cast<std::size_t>(accumulation)];
}

/// The value of `zero.accumulation`. Throws Error(deck) for an unknown name, and for `local` with sharded gradients,
/// since no rank then keeps a whole gradient.
inline Accumulation accumulation_of(const std::string& name, int stage) {
  if (name == name_of(Accumulation::ordered)) return Accumulation::ordered;
  if (name != name_of(Accumulation::local)) {
    throw Error(Failure::deck, "zero.accumulation = \"" + name + "\": accepted are " + list_of(kAccumulations));
  }
  if (placement_row(stage).gradients == distributed::Placement::sharded) {
    throw Error(Failure::deck, "zero.accumulation = \"local\" keeps whole gradients, which zero.stage = " +
                                   std::to_string(stage) + " does not: accepted there is ordered");
  }
  return Accumulation::local;
}

}  // namespace kozero::zero
