// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_output.hpp: what a run reports on rank 0: log lines, the progress bar, and metrics.jsonl.
// Log writes lines to the terminal and to log.txt. Progress reports steps through a Log. MetricsFile writes one JSON
// object per step; docs/metrics.md documents its keys.
#pragma once
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "io/posix/file.hpp"

namespace kozero::io {

// What the run tells: rank 0's lines, on the terminal and in log.txt; the log of other ranks writes nothing.
// A terminal's last line may be a status that comes and goes (a progress bar); said lines appear above it. A log.txt
// that cannot be written ends no run: the terminal has the lines, and says once that the file lacks them. If the
// terminal is lost (`train | head -1`), the file has the lines, and says once that the terminal lacks them.

class Log {
 public:
  /// Writes nothing: other ranks.
  Log() = default;
  /// Speaks to `terminal`. `interactive`: statuses are shown there.
  Log(std::ostream& terminal, bool interactive) : terminal_(&terminal), interactive_(interactive) {}
  /// Rank 0's on standard output, interactive where that is a terminal, or KOZERO_TERMINAL says how wide one is that a
  /// launcher stands before; but not if NO_COLOR is set or TERM is "dumb".
  static Log on_standard_output();
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Appends to the file from now on. Throws Error(write) where it cannot be opened. Does nothing on a log of other
  /// ranks.
  void record_in(const std::string& path);

  /// A line for both. Both show it as printable_line() makes it (readable.hpp).
  void say(std::string_view line);
  /// A line for the file alone.
  void note(std::string_view line);
  /// Replaces the terminal's status, cut to its width; "" removes it.
  void status(std::string_view line);
  [[nodiscard]] bool interactive() const { return interactive_; }

 private:
  /// Notes in the file, once, that the terminal takes no more lines.
  void note_lost_terminal();

  std::ostream* terminal_ = nullptr;
  bool interactive_ = false;
  bool status_shown_ = false;
  LineFile file_;
  bool file_lacks_lines_ = false;
  bool terminal_lacks_lines_ = false;
};

/// Columns of the terminal on standard output, 80 where unknown.
int terminal_width();

// How far a run is: a bar on a terminal, one plain line every log.every steps in a pipe.
//   [======>         ]  120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
//   step 120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
// and in fp16 the loss scale behind the loss. Loss and rate are means over the steps since the last plain line (the
// loss over those where it is finite); the other numbers are of the last step.
// The plain lines of every log.every-th step are in log.txt either way; the first and last step always are.

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
  double smooth_step_s_ = 0.0;  ///< an exponential running mean, for the time left
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace kozero::io
