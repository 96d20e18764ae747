// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// frozen_weights.hpp: weights without gradients, in f32, for evaluation and generation.
// Replicated or sharded as `zero.stage` asks for training, so that what trains sharded can be evaluated sharded.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/zero/placement_row.hpp>
#include <kozero/zero/weights.hpp>

namespace kozero::zero {

class FrozenWeights final : public ParameterAccess<float> {
 public:
  FrozenWeights(const ParameterTable& table, dist::Communicator& comm, int stage, MemoryLedger& ledger,
                int prefetch_units = 0)
      : weights_(table, comm, {placement_row(stage).parameters, placement_row(stage).parameters}, ledger,
                 prefetch_units) {}

  Vector<const float> acquire(int unit) override { return weights_.acquire(unit); }
  void release(int unit) override { weights_.release(unit); }
  UnitGradient gradient(int /*unit*/) override { throw Error(Failure::internal, "frozen weights have no gradient"); }
  void gradient_ready(int /*unit*/) override { throw Error(Failure::internal, "frozen weights have no gradient"); }

  [[nodiscard]] Weights& weights() { return weights_; }

 private:
  WeightsOf<float> weights_;
};

}  // namespace kozero::zero
