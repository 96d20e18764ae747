// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sgd.cpp: gradient descent with momentum (kernels/ops/sgd.hpp). State: momentum_buffer.
#include "kernels/ops/sgd.hpp"
#include "src/optim/flat_optimizer.hpp"

namespace kozero::optim {
namespace {

template <class Scalar>
class Sgd final : public FlatOptimizer<Scalar> {
 public:
  Sgd(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory)
      : FlatOptimizer<Scalar>(std::move(segments), ledger, memory),
        config_(config),
        momentum_buffer_(this->take_state("momentum_buffer")) {}

  [[nodiscard]] std::string name() const override { return "sgd"; }

 private:
  void update_runs(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                   const kernels::UpdateRuns& runs, const Step& step) override {
    const auto extent = static_cast<std::int64_t>(target.master.extent(0));
    const kernels::Sgd scalars{.lr = static_cast<float>(step.lr),
                               .momentum = static_cast<float>(config_.momentum),
                               .weight_decay = static_cast<float>(config_.weight_decay),
                               .gradient_scale = static_cast<float>(step.gradient_scale)};
    this->run_where_states_lie([&](const auto& space) {
      kernels::sgd_update(space, target.master, target.stored, slice(momentum_buffer_, first, extent), gradient,
                          scalars, runs);
    });
  }

  Config config_;
  Vector<float> momentum_buffer_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_sgd(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger,
                                            MemorySource* memory) {
  return std::make_unique<Sgd<Scalar>>(config, std::move(segments), ledger, memory);
}

#define KOZERO_INSTANTIATE(T) \
  template std::unique_ptr<Optimizer<T>> make_sgd<T>(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::optim
