// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics.hpp: metrics.jsonl, one JSON object a line and step, each written at once; never half a line.
// The schema is stable: keys stay, in this order, with these meanings; new ones come behind. Numbers have as many
// digits as bring the same bits back; what is not finite, or not measured in this step, is null.
//   step           updates done, from 1            tokens         seen since the beginning, this step included
//   loss           mean over the step's tokens     val_loss       mean over the validation batches, or null
//   grad_norm      global, before clipping         lr             of this update
//   step_s         wall seconds of the step        tokens_per_s   over all ranks
//   mfu            model flops utilisation, 0..1, or null where the peak is not known
//   seconds        {phase: seconds on rank 0}      bytes_sent     {collective: bytes this rank sent in this step}
//     checkpoint   of them: how long training stood still for a save between the step before and this one
//   memory         {category: bytes on rank 0}, "resident" and "peak" being the process's own
//   loss_scale     fp16: of this step, else null   skipped        whether the update was left out: a number not finite
//   skips_in_a_row steps left out by train.on_nonfinite = skip since the last update, this one included
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
