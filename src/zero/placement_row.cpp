// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <kozero/core/error.hpp>
#include <kozero/zero/placement_row.hpp>

namespace kozero::zero {

using dist::Placement;

PlacementRow placement_row(int stage) {
  static constexpr std::array<PlacementRow, 4> kRows = {{
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

Accumulation accumulation_of(const std::string& name, int stage) {
  if (name == "ordered") return Accumulation::ordered;
  if (name != "local") throw Error(Failure::deck, "zero.accumulation = \"" + name + "\": accepted are ordered, local");
  if (placement_row(stage).gradients == Placement::sharded) {
    throw Error(Failure::deck, "zero.accumulation = \"local\" keeps whole gradients, which zero.stage = " +
                                   std::to_string(stage) + " does not: accepted there is ordered");
  }
  return Accumulation::local;
}

}  // namespace kozero::zero
