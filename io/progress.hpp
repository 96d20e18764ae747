// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// progress.hpp: how far a run is: a bar on a terminal, one plain line every log.every steps in a pipe.
//   [======>         ]  120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
//   step 120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
// and in fp16 the loss scale behind the loss. Loss and rate are means over the steps since the last plain line (the
// loss over those where it is finite); the other numbers are of the last step.
// The plain lines of every log.every-th step are in log.txt either way; the first and last step always are.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <kozero/io/log.hpp>

namespace kozero::io {

struct ProgressStep {
  std::int64_t step = 0;  ///< from 1
  double loss = 0.0;
  double tokens_per_s = 0.0;
  double step_s = 0.0;
  std::int64_t memory = 0;  ///< bytes of memory this process holds (resident)
  std::optional<double> loss_scale = {};
};

class Progress {
 public:
  /// `every` <= 0: the first and last line only.
  Progress(Log& log, std::int64_t total_steps, std::int64_t every)
      : log_(log), total_steps_(total_steps), every_(every) {}

  void update(const ProgressStep& now);

 private:
  /// Sums over the steps since the last plain line.
  struct Sums {
    double loss = 0.0;
    std::int64_t losses = 0;
    double tokens = 0.0;
    double seconds = 0.0;
  };

  void add(const ProgressStep& now);
  [[nodiscard]] std::string figures(const ProgressStep& now) const;
  [[nodiscard]] std::string bar(const ProgressStep& now) const;

  Log& log_;
  std::int64_t total_steps_, every_;
  Sums sums_;
  double smooth_step_s_ = 0.0;  ///< a running mean that forgets: for the time left
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace kozero::io
