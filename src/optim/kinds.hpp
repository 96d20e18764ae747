// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kinds.hpp: the optimizers there are: each file defines one maker, and make_optimizer's table names it.
#pragma once
#include <memory>
#include <vector>

#include <kozero/optim/optimizer.hpp>

namespace kozero::optim {

/// Adam with decoupled weight decay. States: exp_avg, exp_avg_sq.
std::unique_ptr<Optimizer> make_adamw(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger);

/// Gradient descent with momentum. State: momentum_buffer.
std::unique_ptr<Optimizer> make_sgd(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger);

}  // namespace kozero::optim
