// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_room.hpp: the memory that a run's arrays lie in, the node's or a GPU's: is there enough, and how much was
// taken.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/plan/memory_plan.hpp>

#include "session.hpp"

namespace kozero::commands {

/// Throws Error(deck), seen by all ranks, before anything large is taken, where some rank has less room than `plan`
/// takes: with the plan, its largest part and the lowest stage that fits. A system that does not tell refuses nothing.
void require_room(const plan::MemoryPlan& plan, Session& session, std::int64_t data_vocab);

class MemoryUse {
 public:
  /// To be made before the run's arrays are.
  MemoryUse();
  /// Bytes of this rank: the process' peak on a host; of a GPU what is taken since the start, beyond the driver's
  /// context, by all ranks that share it, divided by their number. Collective.
  [[nodiscard]] std::int64_t taken(Session& session) const;

 private:
  std::int64_t free_at_start_;
};

/// Ranks that compute on this rank's GPU, whichever of them the launcher lets each see. Collective.
int ranks_a_gpu(Session& session);

}  // namespace kozero::commands
