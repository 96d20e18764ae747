// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_log.hpp: the output of a training run: banner, a row of metrics.jsonl per step, evaluations, memory, and the
// closing lines.
#pragma once
#include <cstdint>
#include <optional>

#include <kozero/core/timing.hpp>
#include <kozero/run/train.hpp>
#include <kozero/train/evaluation.hpp>
#include "io/run/metrics.hpp"
#include "io/run/run_output.hpp"
#include "src/run/run_start.hpp"

namespace kozero::run {

class RunLog {
 public:
  /// `start` must outlive the object. Collective.
  explicit RunLog(RunStart& start);

  [[nodiscard]] const RunSummary& summary() const { return summary_; }
  /// The last step that is complete.
  [[nodiscard]] std::int64_t step() const { return summary_.steps; }
  /// Tokens predicted up to step().
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  void say_banner();
  /// The first step of this process begins.
  void begin_steps();
  /// Counts the step's loss, tokens and time, and returns its row. `stall_s`: seconds that saving stalled training.
  io::StepMetrics count(const train::StepResult& result, double seconds, double epoch, double stall_s);
  void say_skipped(const train::StepResult& result, double next_scale);

  /// Whether the validation loss is due after this step. `is_saved`: the step's state will be saved.
  [[nodiscard]] bool evaluation_due(std::int64_t step, bool is_saved) const { return validation_.due(step, is_saved); }
  /// Puts the validation losses of the state after the row's step into the row, unless a signal comes meanwhile.
  /// Collective.
  void evaluate_after(io::StepMetrics& row);

  /// After the last step: computes the median of tokens per second.
  void end_steps();
  /// Collective.
  void say_memory();
  /// Collective.
  void say_evaluation();
  /// After the end of a complete run: a text that rank 0 samples while the others sleep. A stop signal ends the text,
  /// and an error is a note. Collective.
  void say_sample();

 private:
  /// Why a run with a tokenizer has no sample; "" if it has one.
  [[nodiscard]] std::string sample_unavailable_reason() const;
  void sample_alone();
  /// Throws Error(non_finite), seen by all ranks; under train.on_nonfinite = "skip" a warning.
  void say_non_finite(const std::string& text);
  /// The model's operations over the published peak of the GPUs.
  [[nodiscard]] std::optional<double> utilization(double tokens_per_s) const;

  RunStart& start_;
  const io::Deck& deck_ = start_.deck();
  const train::Settings& settings_ = start_.settings();
  const data::DataSet& data_ = start_.data();
  EngineOnRanks& on_ranks_ = start_.on_ranks();
  train::Engine& engine_ = start_.engine();
  io::Log& log_ = start_.log();
  train::Validation validation_{deck_, settings_, engine_, data_};
  std::optional<train::Evaluation> last_evaluation_;  ///< of the newest step's state; none if it was not measured
  std::int64_t tokens_ = 0;
  ThinnedSeries tokens_per_s_;  ///< of all steps of this process but its first
  double peak_flops_ = 0.0;     ///< published, per second, of all the run's GPUs; 0 if it is not known
  RunSummary summary_;
};

}  // namespace kozero::run
