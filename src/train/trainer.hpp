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

#include <kozero/train/checkpoint.hpp>
#include "src/train/evaluator.hpp"
#include "src/train/state_check.hpp"
#include "src/train/updater.hpp"

namespace kozero::train {

template <class Scalar>
class Trainer final : public EvaluatorOf<Scalar, Engine> {
  using Base = EvaluatorOf<Scalar, Engine>;

 public:
  Trainer(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger);

  [[nodiscard]] std::vector<optim::NamedState> optimizer_states() const override {
    return updater_.optimizer().states();
  }
  [[nodiscard]] const std::vector<UnitRange>& update_ranges() const override { return updater_.ranges(); }

  void train_on(const data::Sampler& sampler, const data::SampleSource& source, const StepConfig& config) override;
  StepResult step(std::int64_t step, const std::function<int()>& request = {}) override;
  [[nodiscard]] const LossScaler& loss_scaler() const override { return config_.loss_scaler; }
  void initialize(std::uint64_t seed) override {
    Base::initialize(seed);
    updater_.take_as_right();
  }
  void publish() override {
    Base::publish();
    updater_.take_as_right();
  }
  [[nodiscard]] io::ReadWatch* disk_watch() const override { return updater_.disk_watch(); }
  void require_unchanged_disk() override { updater_.require_unchanged_disk(comm()); }

  [[nodiscard]] PhaseSeconds& phase_seconds() override { return phase_seconds_; }
  [[nodiscard]] Staging* staging() override { return staging_.get(); }
  using Base::comm, Base::loader, Base::parameters, Base::state;

 private:
  using Base::model;
  using Clock = std::chrono::steady_clock;

  /// Sets result.loss, summed over all ranks in granule order, and result.request, the maximum over ranks.
  void gather_loss(const std::function<int()>& request, std::int64_t granules, Clock::time_point start,
                   StepResult& result);
  /// The largest request of any rank, after `done` micro-steps of the step. Collective.
  [[nodiscard]] int request_of_any_rank(const std::function<int()>& request, Clock::time_point start, int done);
  /// Names the samples of the step, those of all ranks.
  void name_samples(std::int64_t step);
  [[nodiscard]] std::int64_t ignored_targets() const;
  /// `now`: positions of the step that has its samples named.
  [[nodiscard]] model::Batch batch(const data::Share& now);
  [[noreturn]] void refuse_non_finite(const StepResult& result) const;
  void update(const StepResult& result);
  [[nodiscard]] bool checks(std::int64_t step) const;
  void record_state(std::int64_t step);

  PhaseSeconds phase_seconds_;
  Updater<Scalar> updater_;
  std::unique_ptr<Staging> staging_;  // null if saves are synchronous

  const data::Sampler* sampler_ = nullptr;  // set by train_on, as all members below
  const data::SampleSource* source_ = nullptr;
  StepConfig config_;
  data::Share positions_;                // of the step
  std::vector<data::SampleName> names_;  // of the samples at these positions
  std::int64_t skips_in_a_row_ = 0;
  std::unique_ptr<StateCheck<Scalar>> check_;  // null if check_every is 0
  HostScalars losses_;                         // per micro-step, summed over this rank's tokens
  double micro_step_s_ = 0.0;                  // the slowest rank's, equal on all ranks; 0: not known yet
};

}  // namespace kozero::train
