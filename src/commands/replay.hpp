// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// replay.hpp: computes a step of a run again, from its newest complete checkpoint before that step (or its beginning),
// and compares bits: losses and gradient norms with metrics.jsonl, tensors with the checkpoint after the step, if any.
// A difference says that hardware computed or stored wrongly, or that data or program are others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/dist/environment.hpp>

namespace kozero::commands {

/// `overrides` change the run's deck. Writes nothing but token shards of data.text. Collective. Throws Error(internal,
/// seen by all ranks) naming the first difference, Error(input) where the run or the step is not there, Error(deck)
/// where the run had another rank count.
void replay(const dist::Environment& environment, const std::string& run, const std::vector<std::string>& overrides,
            std::int64_t step);

/// The rank count of the run's last start; 0 where neither its ranks.json nor its deck says. Throws Error(deck or
/// input).
std::int64_t ranks_of_run(const std::string& run);

}  // namespace kozero::commands
