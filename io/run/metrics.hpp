// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics.hpp: metrics.jsonl, one JSON object per step: its row, writer, readers, and the trim when a run is resumed.
//   {"step":7,"tokens":57344,"loss":2.5,"val_loss":null,...}
// docs/metrics.md documents each key and its unit. The schema is stable: keys keep their order and meaning; new keys
// are appended. Numbers have round-trip digits; a number that is not finite, or was not measured in this step, is null.
// The readers make one pass over a line's bytes, since a JSON tree per line is slow for a file of 300,000 lines (200
// MB). They skip incomplete lines, such as the last line of a running run.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/posix/file.hpp"

namespace kozero::io {

inline constexpr const char* kMetricsFile = "metrics.jsonl";  ///< in a run's folder

/// The validation loss of one of several sources.
struct SourceLoss {
  double loss = 0.0;
  std::optional<double> bits_per_byte;
};

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
  double time = 0.0;                     ///< seconds since 1970-01-01 00:00 UTC, at the step's end
  double epoch = 0.0;                    ///< passes over the training data, this step included
  std::int64_t bytes_across_groups = 0;  ///< the part of bytes_sent to other groups of zero.shard_group
  std::map<std::string, std::int64_t> calls;
  std::map<std::string, SourceLoss> val_sources;  ///< by name; the line has the key only if there are some
};

/// A loss or a norm for people: "3.4512"; four significant digits of less than 0.1: "0.01235", "3.579e-07".
std::string loss_text(double value);

/// The object's line, without the line's end.
std::string to_json_line(const StepMetrics& metrics);

/// Rank 0's writer. Throws Error(write) naming the file, the step and the reason; a later step may be written again.
class MetricsFile {
 public:
  /// Creates the file; an existing file is an error, since a run is never overwritten.
  explicit MetricsFile(const std::string& path);
  /// Continues the file of a run that resumes after `step`: removes later lines and an incomplete last line. A file
  /// with lines that are not metrics is kept under another name.
  MetricsFile(const std::string& path, std::int64_t step);
  void write(const StepMetrics& metrics);
  /// A note for the log on errors in the continued file; "" if none.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  LineFile file_;
  std::string note_;
};

/// Fills `values` with the line's top-level numbers under `keys`; NaN for null, a value that is not a number, or an
/// absent key. Returns the step; nullopt if the line is not a whole object with a step.
std::optional<std::int64_t> read_metrics_row(std::string_view line, std::span<const std::string_view> keys,
                                             std::span<double> values);

/// Calls `row(step, values)` for each row of the file, in order; `values` as read_metrics_row() fills them.
/// Throws Error(input) if the file cannot be read.
void read_metrics(const std::string& path, std::span<const std::string_view> keys,
                  const std::function<void(std::int64_t step, std::span<const double> values)>& row);

/// Calls `use(line)` for each line of the file, complete or not, in order. Throws Error(input) if it cannot be read.
void read_metrics_lines(const std::string& path, const std::function<void(std::string_view line)>& use);

/// The step of the newest row; nullopt if there is none or the file cannot be read. Reads only the end of the file.
std::optional<std::int64_t> newest_metrics_step(const std::string& path);

}  // namespace kozero::io
