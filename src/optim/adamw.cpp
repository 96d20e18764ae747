// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adamw.cpp: Adam with decoupled weight decay (kernels/ops/adamw.hpp). States: exp_avg, exp_avg_sq.
#include "kernels/ops/adamw.hpp"
#include <kozero/core/portable_math.hpp>
#include "src/optim/flat_optimizer.hpp"

namespace kozero::optim {
namespace {

template <class Scalar>
class AdamW final : public FlatOptimizer<Scalar> {
 public:
  AdamW(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory)
      : FlatOptimizer<Scalar>(std::move(segments), ledger, memory),
        config_(config),
        exp_avg_(this->take_state("exp_avg")),
        exp_avg_sq_(this->take_state("exp_avg_sq")) {}

  [[nodiscard]] std::string name() const override { return "adamw"; }

 private:
  void update_runs(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                   const kernels::UpdateRuns& runs, const Step& step) override {
    const auto extent = static_cast<std::int64_t>(target.master.extent(0));
    const kernels::AdamW scalars{.lr = step.lr,
                                 .beta1 = config_.beta1,
                                 .beta2 = config_.beta2,
                                 .eps = config_.eps,
                                 .weight_decay = config_.weight_decay,
                                 .correction1 = 1.0 - integer_power(config_.beta1, step.number),
                                 .correction2 = 1.0 - integer_power(config_.beta2, step.number),
                                 .gradient_scale = step.gradient_scale};
    this->run_where_states_lie([&](const auto& space) {
      kernels::adamw_update(space, target.master, target.stored, slice(exp_avg_, first, extent),
                            slice(exp_avg_sq_, first, extent), gradient, scalars, runs);
    });
  }

  Config config_;
  Vector<float> exp_avg_;
  Vector<float> exp_avg_sq_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_adamw(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger,
                                              MemorySource* memory) {
  return std::make_unique<AdamW<Scalar>>(config, std::move(segments), ledger, memory);
}

#define KOZERO_INSTANTIATE(T)                                                                              \
  template std::unique_ptr<Optimizer<T>> make_adamw<T>(const Config&, std::vector<Segment>, MemoryLedger&, \
                                                       MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
