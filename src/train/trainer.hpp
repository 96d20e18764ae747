// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trainer.hpp: one training step, the same code for every placement and model.
//   for each micro-step: read this rank's granule; compute its gradient by forward and backward; reduce the gradient
//   compute loss and gradient norm over all ranks; if either is not finite, stop or skip before the state changes
//   clip by the global norm; update this rank's ranges; publish the update
// Gradients are those of the loss times its scale (engine.hpp). The norm and the gradients that the update uses are
// unscaled.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include <kozero/core/disk_memory.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "src/train/disk_check.hpp"
#include "src/train/host_update.hpp"
#include "src/train/state_check.hpp"

namespace kozero::train {

template <class Scalar>
class Trainer final : public Engine {
 public:
  Trainer(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger);

  [[nodiscard]] const model::Config& config() const override { return model_->config(); }
  [[nodiscard]] const ParameterTable& parameters() const override { return model_->parameters(); }
  [[nodiscard]] double flops_per_token() const override { return model_->flops_per_token(); }
  std::string closing_line() override { return model_->closing_line(state_); }
  double evaluate(const model::Batch& batch) override { return model_->evaluate(state_, batch); }
  void next_token_logits(Matrix<const Token> inputs, std::int64_t num_tokens, Vector<float> logits) override {
    model_->next_token_logits(state_, inputs, num_tokens, logits);
  }
  void reserve_cache(MemoryLedger& ledger, const model::CacheExtents& extents) override {
    model_->reserve_cache(ledger, extents);
  }
  void decode(const model::TokenRows& rows, Matrix<float> logits) override { model_->decode(state_, rows, logits); }

  void initialise(std::uint64_t seed) override { state_.initialise(seed); }
  [[nodiscard]] const distributed::DistributedArray<float>& master() const override {
    return state_.weights().master();
  }
  void publish() override { state_.weights().publish(); }
  [[nodiscard]] std::vector<optim::NamedState> optimizer_states() const override;
  [[nodiscard]] const std::vector<UnitRange>& update_ranges() const override { return update_ranges_; }

  void train_on(const data::Sampler& sampler, const data::SampleSource& source, const StepConfig& config) override;
  StepResult step(std::int64_t step, const std::function<int()>& request = {}) override;
  [[nodiscard]] const LossScaler& loss_scaler() const override { return config_.loss_scaler; }

  [[nodiscard]] distributed::Communicator& comm() override { return comm_; }
  [[nodiscard]] Timeline& timeline() override { return timeline_; }
  [[nodiscard]] data::BatchLoader& loader() override;
  [[nodiscard]] Staging* staging() override { return staging_.get(); }
  [[nodiscard]] zero::ShardedState<Scalar>& state() { return state_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Sets result.loss, summed over all ranks in granule order, and result.request, the maximum over ranks.
  void gather_loss(const std::function<int()>& request, std::int64_t granules, Clock::time_point start,
                   StepResult& result);
  /// The largest request of any rank, after `done` micro-steps of the step. Collective.
  [[nodiscard]] int request_of_any_rank(const std::function<int()>& request, Clock::time_point start, int done);
  [[nodiscard]] model::Batch batch(std::int64_t step, const data::Share& now);
  [[noreturn]] void refuse_non_finite(const StepResult& result) const;
  void update(const StepResult& result);
  /// Parts that one optimizer call updates each. With state on disk, parts are small enough that memory holds several.
  [[nodiscard]] std::vector<UpdatePart> parts_of_update(const Offload& offload) const;
  /// The arrays of each update part, in update order.
  [[nodiscard]] std::vector<std::vector<DiskCheck::Array>> arrays_of_update() const;
  /// Throws Error(input), seen by all ranks, if state on disk was changed since its last update: no step can be trusted
  /// then. Collective.
  void require_unchanged_disk() const;
  [[nodiscard]] bool checks(std::int64_t step) const;
  void record_state(std::int64_t step);

  distributed::Communicator& comm_;
  Timeline timeline_;
  std::unique_ptr<model::Model<Scalar>> model_;
  std::unique_ptr<MemorySource> offloaded_;  // set if Settings::offload uses host or disk
  zero::ShardedState<Scalar> state_;
  std::vector<UnitRange> update_ranges_;
  std::unique_ptr<optim::Optimizer<Scalar>> optimizer_;  // null unless training
  std::vector<UpdatePart> update_parts_;
  std::int64_t pages_bytes_ = 0;       // memory for pages of state on disk
  std::unique_ptr<PageStream> pages_;  // state on disk; set by train_on, with the next one
  std::unique_ptr<DiskCheck> disk_check_;
  std::unique_ptr<HostUpdate<Scalar>> host_update_;  // set if optimizer state is in host memory
  std::unique_ptr<data::BatchLoader> loader_;        // null for generation
  std::unique_ptr<Staging> staging_;

  const data::Sampler* sampler_ = nullptr;  // set by train_on, as all members below
  const data::SampleSource* source_ = nullptr;
  StepConfig config_;
  std::int64_t skips_in_a_row_ = 0;
  std::unique_ptr<StateCheck<Scalar>> check_;  // null if check_every is 0
  HostScalars losses_;                         // per micro-step, summed over this rank's tokens
  double micro_step_s_ = 0.0;                  // the slowest rank's, equal on all ranks; 0: not known yet
};

}  // namespace kozero::train
