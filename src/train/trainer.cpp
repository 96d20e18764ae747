// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trainer.cpp: the dynamic loss scale, and the training step.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include "kernels/matmul/matmul.hpp"
#include "src/train/trainer.hpp"

namespace kozero::train {
namespace {

constexpr double kLeast = 1.0;
constexpr double kMost = 0x1p24;

std::unique_ptr<MemorySource> memory_of(const Offload& offload, int rank) {
  using Kind = MemorySource::Kind;
  if (offload.uses(Kind::disk)) return std::make_unique<DiskMemory>(offload.folder, "rank " + std::to_string(rank));
  if (offload.uses(Kind::host)) return std::make_unique<HostMemory>();
  return nullptr;
}

/// Evaluation and generation do not offload.
zero::StateMemory state_memory(const Settings& settings, MemorySource* offloaded) {
  const auto where = [&](MemorySource::Kind kind) {
    return kind == MemorySource::Kind::device || settings.use != Use::training ? nullptr : offloaded;
  };
  return {where(settings.offload.optimizer), where(settings.offload.parameters)};
}

// A step of hours must not make a run deaf to signals and run.max_minutes, so the ranks also agree on a stop between
// micro-steps. An agreement makes the ranks wait for each other, so normal steps must not have any. All ranks know the
// slowest rank's time of a micro-step, which travels with the losses, and derive from it after which micro-steps to
// agree: those are about kBetweenRequests apart. A step that is shorter has no agreement. Only the first step, whose
// pace is unknown, has one after its first micro-step. A step that ends within kBetweenRequests is completed. The
// bound is well below the 30 s that batch systems grant.
constexpr double kBetweenRequests = 2.0;  // seconds

int micro_steps_between_requests(double micro_step_s) {
  constexpr double kMost = 1e9;
  return static_cast<int>(std::clamp(kBetweenRequests / std::max(micro_step_s, 1.0 / kMost), 1.0, kMost));
}

zero::Config zero_config(const Settings& settings) {
  zero::Config config = settings.zero;
  config.trains = settings.use == Use::training;
  config.units_held = units_held(settings);
  return config;
}

}  // namespace

void LossScaler::count_good_step() {
  if (!is_dynamic() || ++good_steps_ < window_) return;
  good_steps_ = 0;
  scale_ = std::min(2.0 * scale_, kMost);
}

bool LossScaler::back_off() {
  if (!is_dynamic() || scale_ <= kLeast) return false;
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
    : comm_(mesh.all()),
      model_(model::make_model<Scalar>(settings.model)),
      offloaded_(memory_of(settings.offload, comm_.rank())),
      state_(model_->parameters(), mesh, zero_config(settings), ledger, state_memory(settings, offloaded_.get())) {
  const bool trains = settings.use == Use::training;
  if (settings.use != Use::generation) {
    loader_ = std::make_unique<data::BatchLoader>(settings.batch.micro_batch, settings.model.seq, ledger,
                                                  trains ? settings.batch.micro_steps : 1);
  }
  if (trains) {
    for (const auto& owned : state_.update_ranges()) update_ranges_.push_back(owned.range);
    optimizer_ = optim::make_optimizer<Scalar>(settings.optim, optim::segments_of(model_->parameters(), update_ranges_),
                                               ledger, state_memory(settings, offloaded_.get()).optimizer);
    if (settings.offload.optimizer == MemorySource::Kind::host) {
      host_update_ =
          std::make_unique<HostUpdate<Scalar>>(state_.update_ranges(), settings.offload, ledger, *offloaded_);
    } else {
      update_parts_ = parts_of_update(settings.offload);
    }
    if (settings.offload.uses(MemorySource::Kind::disk)) {
      pages_bytes_ = settings.offload.bytes;
      ledger.book(Memory::staging, "pages of state on disk", std::min(pages_bytes_, ledger.bytes(Memory::disk)));
    }
  }
  // Evaluation runs no backward, so all blocks share one block's activations.
  const model::Recompute recompute = trains ? settings.recompute : model::Recompute{.blocks = 1};
  if (settings.use != Use::generation) model_->reserve(ledger, settings.batch.micro_batch, recompute);
  ledger.book(Memory::workspace, "matrix products", kernels::product_workspace());
  if (trains && settings.staged) {
    staging_ = std::make_unique<Staging>(owned_state(*this), settings.staging_mib, ledger);
  }
}

template <class Scalar>
std::vector<optim::NamedState> Trainer<Scalar>::optimizer_states() const {
  return optimizer_ ? optimizer_->states() : std::vector<optim::NamedState>();
}

template <class Scalar>
data::BatchLoader& Trainer<Scalar>::loader() {
  require(loader_ != nullptr, "an engine for generation loads no batches");
  return *loader_;
}

template <class Scalar>
void Trainer<Scalar>::train_on(const data::Sampler& sampler, const data::SampleSource& source,
                               const StepConfig& config) {
  require(optimizer_ != nullptr, "an engine that was made for another use is to train");
  sampler_ = &sampler;
  source_ = &source;
  config_ = config;
  skips_in_a_row_ = 0;
  if (pages_bytes_ > 0) {
    auto arrays = arrays_of_update();
    std::vector<std::vector<PageRange>> pages(arrays.size());
    for (std::size_t part = 0; part < arrays.size(); ++part) {
      for (const auto& array : arrays[part]) pages[part].push_back(range_of(array));
    }
    if (pages_ == nullptr) pages_ = std::make_unique<PageStream>(std::move(pages), pages_bytes_);
    disk_check_ = std::make_unique<DiskCheck>(std::move(arrays));
  }
  if (check_ != nullptr) check_->discard();
  check_.reset();
  if (config.check_every > 0) check_ = std::make_unique<StateCheck<Scalar>>(model_->parameters(), state_, *optimizer_);
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
  auto timer = timeline_.phase("check");
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
  const data::Granules granules(sampler_->positions(step), loader_->micro_batch());
  const int micro_steps = granules.micro_steps(comm_.size());
  StepResult result{.step = step, .tokens = sampler_->positions(step).count * config_.seq, .micro_steps = micro_steps};
  result.loss_scale = config_.loss_scaler.scale();
  const auto start = Clock::now();
  int next_request = micro_step_s_ == 0.0 ? 1 : micro_steps_between_requests(micro_step_s_);
  const float factor = static_cast<float>(result.loss_scale) / static_cast<float>(result.tokens);
  for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
    state_.gradients().begin_micro_step({micro_step, micro_steps, granules.busy_ranks(micro_step, comm_.size())});
    const model::Batch micro_batch =
        batch(step, granules.granule(std::int64_t{micro_step} * comm_.size() + comm_.rank()));
    auto timer = timeline_.phase("forward_backward");
    model_->forward_backward(state_, micro_batch, factor, &losses_(static_cast<std::size_t>(micro_step)));
    const int done = micro_step + 1;
    if (!request || done != next_request || done == micro_steps) continue;
    result.request = request_of_any_rank(request, start, done);
    next_request += micro_steps_between_requests(micro_step_s_);
    if (result.request == 0 || (micro_steps - done) * micro_step_s_ < kBetweenRequests) continue;
    state_.finish_gradients();  // ends the transfers; nobody reads the gradients, and the next step overwrites them
    result.interrupted_after = done;
    return result;
  }
  {
    auto timer = timeline_.phase("reduce");
    state_.finish_gradients();
    result.grad_norm = state_.gradients().norm() / result.loss_scale;  // waits: losses_ can be read from here on
    gather_loss(request, granules.count(), start, result);
  }
  if (checks(step)) {
    auto timer = timeline_.phase("check");
    check_->compare(step);
  }
  result.lr = optim::learning_rate(config_.schedule, step);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    update(result);
    record_state(step + 1);
    config_.loss_scaler.count_good_step();
    skips_in_a_row_ = 0;
    return result;
  }
  require_unchanged_disk();
  result.bad_tensor = state_.gradients().first_non_finite();
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
  for (const Report& report : distributed::from_all_ranks(comm_, Report{asked, passed.count() / done})) {
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
  for (const Report& report : distributed::from_all_ranks(comm_, mine)) {
    losses.push_back(report.loss);
    micro_step_s_ = std::max(micro_step_s_, report.micro_step_s);
    result.request = std::max(result.request, static_cast<int>(report.request));
  }
  result.loss = data::sum_over_granules(losses, comm_.size(), granules) / static_cast<double>(result.tokens);
}

template <class Scalar>
model::Batch Trainer<Scalar>::batch(std::int64_t step, const data::Share& now) {
  auto timer = timeline_.phase("data");
  const std::int64_t epoch = sampler_->epoch(step);
  std::vector<data::SampleName> names;
  for (std::int64_t position = now.first; position < now.first + now.count; ++position) {
    names.push_back(data::SampleName{epoch, sampler_->sample(epoch, position)});
  }
  return loader_->load(*source_, names);
}

template <class Scalar>
std::vector<UpdatePart> Trainer<Scalar>::parts_of_update(const Offload& offload) const {
  constexpr std::int64_t kPartsInMemory = 8;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // 4 MiB of each array: large requests for any disk
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (offload.uses(MemorySource::Kind::disk)) {
    const auto arrays = static_cast<std::int64_t>(optimizer_->states().size()) + 2;  // + master and stored weights
    const std::int64_t in_memory = offload.bytes / (kPartsInMemory * arrays * static_cast<std::int64_t>(sizeof(float)));
    most = std::clamp<std::int64_t>(in_memory / kAlignment * kAlignment, kAlignment, kMostElements);
  }
  return parts_of(update_ranges_, most);
}

template <class Scalar>
std::vector<std::vector<DiskCheck::Array>> Trainer<Scalar>::arrays_of_update() const {
  std::vector<std::vector<DiskCheck::Array>> arrays;
  for (const UpdatePart& part : update_parts_) {
    const auto& owned = state_.update_ranges()[part.range];
    auto& of_part = arrays.emplace_back();
    of_part.emplace_back(words_of(slice(owned.master, part.first, part.extent)));
    if (has_master<Scalar>) of_part.emplace_back(words_of(slice(owned.stored, part.first, part.extent)));
    for (const auto& state : optimizer_->states()) {
      of_part.emplace_back(words_of(slice(state.values, owned.range.first + part.first, part.extent)));
    }
  }
  return arrays;
}

template <class Scalar>
void Trainer<Scalar>::require_unchanged_disk() const {
  if (disk_check_ == nullptr) return;
  for (const auto& text : distributed::gather_text(comm_, disk_check_->first_changed())) {
    if (!text.empty()) throw Error(Failure::input, text, Error::Seen::by_all_ranks);
  }
}

template <class Scalar>
void Trainer<Scalar>::update(const StepResult& result) {
  const bool clips = config_.grad_clip > 0.0 && result.grad_norm > config_.grad_clip;
  const optim::Step step{result.step - config_.optimizer_start, result.lr,
                         (clips ? config_.grad_clip / result.grad_norm : 1.0) / result.loss_scale};
  {
    auto timer = timeline_.phase("update");
    if (host_update_ != nullptr) host_update_->run(*optimizer_, step);  // update_parts_ is then empty
    for (std::size_t number = 0; number < update_parts_.size(); ++number) {
      const UpdatePart& part = update_parts_[number];
      const auto& owned = state_.update_ranges()[part.range];
      const optim::Target<Scalar> all{owned.master, owned.stored};
      if (pages_ != nullptr) {
        pages_->await();
        disk_check_->compare(number);
      }
      optimizer_->update(owned.range.first + part.first, all.part(part.first, part.extent),
                         slice(owned.gradient, part.first, part.extent), step);
      if (pages_ != nullptr) {
        disk_check_->record(number);
        pages_->release();
      }
    }
  }
  auto timer = timeline_.phase("publish");
  state_.publish_update();
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
                "{} steps in a row were left out before it (train.max_skips = {}): the run has diverged; go on "
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
