// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// optimizer.cpp: segments with and without weight decay, the loop over segments, AdamW, SGD, and the schedules.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/optim/optimizer.hpp>
#include "kernels/launch/update_elements.hpp"
#include "kernels/ops/adamw.hpp"
#include "kernels/ops/sgd.hpp"

namespace kozero::optim {

namespace {

/// Appends `extent` elements; extends the last segment if its `decay` is equal.
void append(std::vector<Segment>& segments, std::int64_t extent, bool decay) {
  if (extent <= 0) return;
  if (!segments.empty() && segments.back().decay == decay) {
    segments.back().extent += extent;
    return;
  }
  const std::int64_t first = segments.empty() ? 0 : segments.back().first + segments.back().extent;
  segments.push_back(Segment{first, extent, decay});
}

/// Appends one range: its tensors by their offsets, and the pads between tensors.
void append_range(std::vector<Segment>& segments, const ParameterTable& table, const UnitRange& range) {
  std::int64_t done = range.begin;
  const std::int64_t end = range.begin + range.extent;
  for (const Parameter& row : table.rows_of(range.unit)) {
    const std::int64_t begin = std::clamp(row.offset, done, end);
    append(segments, begin - done, false);
    done = std::clamp(row.offset + row.extent(), begin, end);
    append(segments, done - begin, row.decay);
  }
  append(segments, end - done, false);
}

}  // namespace

std::vector<Segment> segments_of(const ParameterTable& table, const std::vector<UnitRange>& ranges) {
  std::vector<Segment> segments;
  std::int64_t extent = 0;
  for (const UnitRange& range : ranges) {
    require(range.first == extent, "optimizer: the ranges leave a gap in the rank's flat array");
    append_range(segments, table, range);
    extent += range.extent;
  }
  return segments;
}

namespace {

// Base of all optimizers here: the loop over the segments that a part of the flat array touches. A derived optimizer
// takes its states with take_state() in its constructor and updates several runs, with and without decay, at a time.

template <class Scalar>
class FlatOptimizer : public Optimizer<Scalar> {
 public:
  void update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient, const Step& step) final;
  [[nodiscard]] std::vector<NamedState> states() const final { return states_; }

 protected:
  /// The segments must be ascending, start at 0 and leave no gap.
  FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory);

  /// Takes a zeroed state over the whole flat array.
  Vector<float> take_state(const std::string& name);
  /// Calls update(space) with Host if the states lie in host memory, else with Device.
  template <class Update>
  void run_where_states_lie(const Update& update) const {
    if (memory_ != nullptr && memory_->kind() == MemorySource::Kind::host) {
      update(Host());
    } else {
      update(Device());
    }
  }

 private:
  /// Updates flat elements [first, first + target.master.extent(0)), which `runs` covers.
  virtual void update_runs(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                           const kernels::UpdateRuns& runs, const Step& step) = 0;

  std::vector<Segment> segments_;
  std::int64_t extent_ = 0;
  MemoryLedger& ledger_;
  MemorySource* memory_;
  std::vector<NamedState> states_;
};

template <class Scalar>
FlatOptimizer<Scalar>::FlatOptimizer(std::vector<Segment> segments, MemoryLedger& ledger, MemorySource* memory)
    : segments_(std::move(segments)), ledger_(ledger), memory_(memory) {
  for (const Segment& segment : segments_) {
    require(segment.first == extent_ && segment.extent >= 0, "optimizer: the segments leave a gap or overlap");
    extent_ += segment.extent;
  }
}

template <class Scalar>
Vector<float> FlatOptimizer<Scalar>::take_state(const std::string& name) {
  states_.push_back({name, memory_ != nullptr ? ledger_.take<float>(Memory::optimizer, name, extent_, *memory_)
                                              : ledger_.take<float>(Memory::optimizer, name, extent_)});
  return states_.back().values;
}

template <class Scalar>
void FlatOptimizer<Scalar>::update(std::int64_t first, const Target<Scalar>& target, Vector<const float> gradient,
                                   const Step& step) {
  const std::int64_t end = first + static_cast<std::int64_t>(target.master.extent(0));
  require(gradient.extent(0) == target.master.extent(0), "optimizer: weights and gradient differ in extent");
  require(first >= 0 && end <= extent_, "optimizer: the part lies outside the flat array");
  const auto touched = std::partition_point(segments_.begin(), segments_.end(), [first](const Segment& segment) {
    return segment.first + segment.extent <= first;
  });
  kernels::UpdateRuns runs;
  std::int64_t begin = first;  // first element of `runs`
  for (auto segment = touched; segment != segments_.end() && segment->first < end; ++segment) {
    const std::int64_t behind = std::min(end, segment->first + segment->extent);
    runs.add(behind - begin, segment->decay);
    if (behind < end && runs.count < kernels::UpdateRuns::kMost) continue;
    update_runs(begin, target.part(begin - first, behind - begin), slice(gradient, begin - first, behind - begin), runs,
                step);
    runs = {};
    begin = behind;
  }
}

/// Adam with decoupled weight decay. States: exp_avg, exp_avg_sq.
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
    const auto number = static_cast<double>(step.number);
    const kernels::AdamW scalars{.lr = step.lr,
                                 .beta1 = config_.beta1,
                                 .beta2 = config_.beta2,
                                 .eps = config_.eps,
                                 .weight_decay = config_.weight_decay,
                                 .correction1 = 1.0 - std::pow(config_.beta1, number),
                                 .correction2 = 1.0 - std::pow(config_.beta2, number),
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

/// Gradient descent with momentum. State: momentum_buffer.
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

template <class Scalar, template <class> class Kind>
std::unique_ptr<Optimizer<Scalar>> make(const Config& config, std::vector<Segment> segments, MemoryLedger& ledger,
                                        MemorySource* memory) {
  return std::make_unique<Kind<Scalar>>(config, std::move(segments), ledger, memory);
}

/// The table of optimizers.
template <class Scalar>
struct Row {
  const char* name;
  std::unique_ptr<Optimizer<Scalar>> (*make)(const Config&, std::vector<Segment>, MemoryLedger&, MemorySource*);
};

template <class Scalar>
constexpr std::array kRows = {Row<Scalar>{"adamw", make<Scalar, AdamW>}, Row<Scalar>{"sgd", make<Scalar, Sgd>}};

}  // namespace

template <class Scalar>
std::unique_ptr<Optimizer<Scalar>> make_optimizer(const Config& config, std::vector<Segment> segments,
                                                  MemoryLedger& ledger, MemorySource* memory) {
  std::string names;
  for (const auto& row : kRows<Scalar>) {
    if (config.kind == row.name) return row.make(config, std::move(segments), ledger, memory);
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(Failure::deck, "optim.kind = \"" + config.kind + "\": accepted are " + names);
}

#define KOZERO_INSTANTIATE(T)                                                                                  \
  template std::unique_ptr<Optimizer<T>> make_optimizer<T>(const Config&, std::vector<Segment>, MemoryLedger&, \
                                                           MemorySource*);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

namespace {

/// (lr(p) - min_lr) / (lr - min_lr), where p in [0, 1] is the completed share of the decay.
double rest_of_fall(const std::string& kind, double p) {
  if (kind == "constant") return 1.0;
  if (kind == "linear" || kind == "wsd") return 1.0 - p;
  if (kind == "cosine") return 0.5 * (1.0 + std::cos(std::numbers::pi * p));
  throw Error(Failure::deck, "optim.schedule = \"" + kind + "\": accepted are constant, linear, cosine, wsd");
}

}  // namespace

double learning_rate(const ScheduleConfig& config, std::int64_t step) {
  const std::int64_t after_warmup = std::max<std::int64_t>(1, config.total_steps - config.warmup_steps);
  const std::int64_t fall = config.decay_steps > 0 ? config.decay_steps : after_warmup;
  const std::int64_t last_start = config.kind == "wsd" ? config.total_steps - fall : 0;
  const std::int64_t start = std::max(config.warmup_steps, last_start);
  const auto fallen = static_cast<double>(std::clamp<std::int64_t>(step - 1 - start, 0, fall));
  const double rest = rest_of_fall(config.kind, fallen / static_cast<double>(fall));
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  return config.min_lr + (config.lr - config.min_lr) * rest;
}

double scaled_rate(const std::string& batch_scaling, double rate, std::int64_t num_ranks, std::int64_t base_ranks) {
  const double growth = static_cast<double>(num_ranks) / static_cast<double>(base_ranks);
  if (batch_scaling == "none") return rate;
  if (batch_scaling == "linear") return rate * growth;
  if (batch_scaling == "sqrt") return rate * std::sqrt(growth);
  throw Error(Failure::deck, "train.batch_scaling = \"" + batch_scaling + "\": accepted are none, linear, sqrt");
}

}  // namespace kozero::optim
