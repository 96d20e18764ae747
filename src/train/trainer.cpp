// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trainer.cpp: the dynamic loss scale, and the training step.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/train/trainer.hpp"

namespace kozero::train {
namespace {

constexpr double kLeastScale = 1.0;
constexpr double kLargestScale = 0x1p24;

// A step of hours must not make a run deaf to signals and run.max_minutes, so the ranks also agree on a stop between
// micro-steps. An agreement makes the ranks wait for each other, so normal steps must not have any. All ranks know the
// slowest rank's time of a micro-step, which travels with the losses, and derive from it after which micro-steps to
// agree: those are about kBetweenRequests apart. A step that is shorter has no agreement. Only the first step, whose
// pace is unknown, has one after its first micro-step. A step that ends within kBetweenRequests is completed. The
// bound is well below the 30 s that batch systems grant.
constexpr double kBetweenRequests = 2.0;  // seconds

int micro_steps_between_requests(double micro_step_s) {
  constexpr double kMostSteps = 1e9;
  return static_cast<int>(std::clamp(kBetweenRequests / std::max(micro_step_s, 1.0 / kMostSteps), 1.0, kMostSteps));
}

}  // namespace

void LossScaler::count_good_step() {
  if (!is_dynamic() || ++good_steps_ < window_) return;
  good_steps_ = 0;
  scale_ = std::min(2.0 * scale_, kLargestScale);
}

bool LossScaler::back_off() {
  if (!is_dynamic() || scale_ <= kLeastScale) return false;
  good_steps_ = 0;
  scale_ = scale_ / 2.0;
  return true;
}

std::optional<io::LossScale> LossScaler::state() const {
  if (!is_dynamic()) return std::nullopt;
  return io::LossScale{scale_, good_steps_};
}

void LossScaler::restore(const std::optional<io::LossScale>& saved) {
  if (!is_dynamic() || !saved) return;
  scale_ = saved->scale;
  good_steps_ = saved->good_steps;
}

template <class Scalar>
Trainer<Scalar>::Trainer(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger)
    : Base(settings, mesh, ledger), updater_(settings, parameters(), state(), ledger, this->offloaded()) {
  this->reserve(settings, ledger);
  if (settings.staged) staging_ = std::make_unique<Staging>(owned_state(*this), settings.staging_mib, ledger);
}

template <class Scalar>
void Trainer<Scalar>::train_on(const data::Sampler& sampler, const data::SampleSource& source,
                               const StepConfig& config) {
  sampler_ = &sampler;
  source_ = &source;
  config_ = config;
  skips_in_a_row_ = 0;
  updater_.begin();
  if (check_ != nullptr) check_->discard();
  check_.reset();
  if (config.check_every > 0)
    check_ = std::make_unique<StateCheck<Scalar>>(parameters(), state(), updater_.optimizer());
  losses_ = HostScalars("kozero::train::losses", static_cast<std::size_t>(config.micro_steps));
}

template <class Scalar>
bool Trainer<Scalar>::checks(std::int64_t step) const {
  return check_ != nullptr && step % config_.check_every == 0;
}

/// Records hashes of the state after step - 1, if `step` is checked.
template <class Scalar>
void Trainer<Scalar>::record_state(std::int64_t step) {
  if (check_ == nullptr) return;
  auto timer = phase_seconds_.phase("check");
  if (checks(step)) {
    check_->record();
  } else {
    check_->discard();
  }
}

template <class Scalar>
StepResult Trainer<Scalar>::step(std::int64_t step, const std::function<int()>& request) {
  require(sampler_ != nullptr, "step() was called before train_on()");
  position().step = step;
  if (checks(step) && !check_->recorded()) record_state(step);
  name_samples(step);
  const data::Granules granules(positions_, loader().micro_batch());
  const int micro_steps = granules.micro_steps(comm().size());
  StepResult result{.step = step, .tokens = positions_.count * config_.seq, .micro_steps = micro_steps};
  result.targets = std::max<std::int64_t>(1, result.tokens - ignored_targets());
  result.loss_scale = config_.loss_scaler.scale();
  const auto start = Clock::now();
  int next_request = micro_step_s_ == 0.0 ? 1 : micro_steps_between_requests(micro_step_s_);
  const float factor = static_cast<float>(result.loss_scale) / static_cast<float>(result.targets);
  for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
    state().gradients().begin_micro_step({micro_step, micro_steps, granules.busy_ranks(micro_step, comm().size())});
    const model::Batch micro_batch = batch(granules.granule(std::int64_t{micro_step} * comm().size() + comm().rank()));
    auto timer = phase_seconds_.phase("forward_backward");
    model().forward_backward(state(), micro_batch, factor, &losses_(static_cast<std::size_t>(micro_step)));
    const int done = micro_step + 1;
    if (!request || done != next_request || done == micro_steps) continue;
    result.request = request_of_any_rank(request, start, done);
    next_request += micro_steps_between_requests(micro_step_s_);
    if (result.request == 0 || (micro_steps - done) * micro_step_s_ < kBetweenRequests) continue;
    state().finish_gradients();  // ends the transfers; nobody reads the gradients, and the next step overwrites them
    result.interrupted_after = done;
    return result;
  }
  {
    auto timer = phase_seconds_.phase("reduce");
    state().finish_gradients();
    result.grad_norm = state().gradients().norm() / result.loss_scale;  // waits: losses_ can be read from here on
    gather_loss(request, granules.count(), start, result);
  }
  if (checks(step)) {
    auto timer = phase_seconds_.phase("check");
    check_->compare(step);
  }
  result.lr = optim::learning_rate(config_.schedule, step - config_.steps_before);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    update(result);
    record_state(step + 1);
    config_.loss_scaler.count_good_step();
    skips_in_a_row_ = 0;
    return result;
  }
  require_unchanged_disk();
  result.bad_tensor = state().gradients().first_non_finite();
  const bool answered = std::isfinite(result.loss) && config_.loss_scaler.back_off();
  if (!answered) {
    const bool skips = config_.on_nonfinite == OnNonFinite::skip && skips_in_a_row_ < config_.max_skips;
    if (!skips) refuse_non_finite(result);
    ++skips_in_a_row_;
  }
  result.skips_in_a_row = skips_in_a_row_;
  return result;
}

template <class Scalar>
int Trainer<Scalar>::request_of_any_rank(const std::function<int()>& request, Clock::time_point start, int done) {
  struct Report {
    std::int64_t request;
    double micro_step_s;
  };
  const std::int64_t asked = request();
  const std::chrono::duration<double> passed = Clock::now() - start;
  int largest = 0;
  micro_step_s_ = 0.0;
  for (const Report& report : distributed::from_all_ranks(comm(), Report{asked, passed.count() / done})) {
    largest = std::max(largest, static_cast<int>(report.request));
    micro_step_s_ = std::max(micro_step_s_, report.micro_step_s);
  }
  return largest;
}

template <class Scalar>
void Trainer<Scalar>::gather_loss(const std::function<int()>& request, std::int64_t granules, Clock::time_point start,
                                  StepResult& result) {
  struct Report {
    double loss;
    double micro_step_s;
    std::int64_t request;
  };
  std::vector<Report> mine;
  const std::int64_t asked = request ? request() : 0;
  const std::chrono::duration<double> passed = Clock::now() - start;
  for (int m = 0; m < result.micro_steps; ++m) {
    mine.push_back({losses_(static_cast<std::size_t>(m)), passed.count() / result.micro_steps, asked});
  }
  std::vector<double> losses;
  micro_step_s_ = 0.0;
  for (const Report& report : distributed::from_all_ranks(comm(), mine)) {
    losses.push_back(report.loss);
    micro_step_s_ = std::max(micro_step_s_, report.micro_step_s);
    result.request = std::max(result.request, static_cast<int>(report.request));
  }
  result.loss = data::sum_over_granules(losses, comm().size(), granules) / static_cast<double>(result.targets);
}

template <class Scalar>
void Trainer<Scalar>::name_samples(std::int64_t step) {
  positions_ = sampler_->positions(step);
  names_.clear();
  for (std::int64_t i = 0; i < positions_.count; ++i) names_.push_back(sampler_->name(step, positions_.first + i));
}

template <class Scalar>
std::int64_t Trainer<Scalar>::ignored_targets() const {
  std::int64_t ignored = 0;
  for (const auto& name : names_) ignored += source_->ignored_targets(name.sample);
  return ignored;
}

template <class Scalar>
model::Batch Trainer<Scalar>::batch(const data::Share& now) {
  auto timer = phase_seconds_.phase("data");
  const auto first = names_.begin() + (now.first - positions_.first);
  return loader().load(*source_, {first, first + now.count});
}

template <class Scalar>
void Trainer<Scalar>::update(const StepResult& result) {
  const bool clips = config_.grad_clip > 0.0 && result.grad_norm > config_.grad_clip;
  const optim::Step step{result.step - config_.optimizer_start, result.lr,
                         (clips ? config_.grad_clip / result.grad_norm : 1.0) / result.loss_scale};
  {
    auto timer = phase_seconds_.phase("update");
    updater_.update(step);
  }
  auto timer = phase_seconds_.phase("publish");
  state().publish_update();
}

template <class Scalar>
void Trainer<Scalar>::refuse_non_finite(const StepResult& result) const {
  const bool scales = config_.loss_scaler.state() || result.loss_scale != 1.0;
  const std::string scaled =
      scales ? " at a loss scale of " + std::to_string(static_cast<std::int64_t>(result.loss_scale)) : "";
  const std::string where =
      result.bad_tensor.empty() ? "though every gradient is" : "first in the gradient of " + result.bad_tensor;
  const std::string advice =
      config_.on_nonfinite == OnNonFinite::stop
          ? "Lower optim.lr, or set train.on_nonfinite = \"skip\""
          : fmt::format(
                "{} steps in a row were left out before it (train.max_skips = {}): the run has diverged; resume "
                "from an older checkpoint with a lower optim.lr",
                skips_in_a_row_, config_.max_skips);
  throw Error(Failure::non_finite,
              "step " + std::to_string(result.step) + ": the loss (" + std::to_string(result.loss) +
                  ") or the gradient norm (" + std::to_string(result.grad_norm) + ") is not finite" + scaled + ", " +
                  where + "; the weights are those of the step before. " + advice,
              Error::Seen::by_all_ranks);
}

std::unique_ptr<Engine> make_engine(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger) {
  return with_stored_type(settings.precision, [&](auto type) -> std::unique_ptr<Engine> {
    return std::make_unique<Trainer<decltype(type)>>(settings, mesh, ledger);
  });
}

}  // namespace kozero::train
