// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics.hpp: metrics.jsonl, one JSON object a line and step, each written at once; never half a line.
// docs/metrics.md says what each key means, in which unit. The schema is stable: keys stay, in this order, with these
// meanings; further ones are appended. Numbers have as many digits as bring the same bits back; a number that is not
// finite, or was not measured in this step, is null.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <kozero/io/posix/line_file.hpp>

namespace kozero::io {

struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  double loss = 0.0;
  std::optional<double> val_loss;
  double grad_norm = 0.0;
  double lr = 0.0;
  double step_s = 0.0;
  double tokens_per_s = 0.0;
  std::optional<double> mfu;
  std::map<std::string, double> seconds;
  std::map<std::string, std::int64_t> bytes_sent;
  std::map<std::string, std::int64_t> memory;
  std::optional<double> loss_scale;
  bool skipped = false;
  std::int64_t skips_in_a_row = 0;
  double time = 0.0;   ///< seconds since 1970-01-01 00:00 UTC, at the step's end
  double epoch = 0.0;  ///< passes over the training data, this step included
};

/// The object's line, without the line's end.
std::string to_json_line(const StepMetrics& metrics);

/// Rank 0's writer. Throws Error(write) naming the file, the step and the reason; a later step may be written again.
class MetricsFile {
 public:
  /// Creates the file; an existing one is an error: a run is never overwritten.
  explicit MetricsFile(const std::string& path);
  /// Goes on with the file of a run that continues after `step`: later lines are dropped, and what is no whole line.
  MetricsFile(const std::string& path, std::int64_t step);
  void write(const StepMetrics& metrics);

 private:
  LineFile file_;
};

}  // namespace kozero::io
