// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_output.hpp: the output of a run on rank 0: log lines on the terminal and in log.txt, and the progress bar.
//   [======>         ]  120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
//   step 120/1000  loss 3.4512  12.3 k tokens/s  1 min 20 s left  512.0 MiB resident
// A terminal's last line may be a status that changes (a progress bar); other lines appear above it. If log.txt cannot
// be written, the run continues, and one line on the terminal reports that. If the terminal is lost (`train | head
// -1`), or if nobody reads it (a suspended pager), one line in the file reports that.
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

class Log {
 public:
  /// A log of other ranks, which writes nothing.
  Log() = default;
  /// Writes to `terminal`. `interactive`: statuses are shown there.
  Log(std::ostream& terminal, bool interactive) : terminal_(&terminal), interactive_(interactive) {}
  /// Rank 0's log on standard output. Interactive if standard output is a terminal, or if KOZERO_TERMINAL gives the
  /// width of a terminal behind a launcher; never if NO_COLOR is set or TERM is "dumb". From now on std::cout does not
  /// wait for its reader (core/output.hpp).
  static Log on_standard_output();
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Appends to the file from now on. Throws Error(write) if it cannot be opened. Does nothing on other ranks.
  void record_in(const std::string& path);

  /// Writes a line to both, as printable_line() (readable.hpp).
  void say(std::string_view line);
  /// Writes a line only to the file.
  void note(std::string_view line);
  /// Replaces the terminal's status, cut to its width; "" removes it.
  void status(std::string_view line);
  [[nodiscard]] bool interactive() const { return interactive_; }

 private:
  /// Notes in the file, once, that the terminal is lost, or that it lacks lines since nobody reads it.
  void note_lost_terminal();

  std::ostream* terminal_ = nullptr;
  bool interactive_ = false;
  bool status_shown_ = false;
  LineFile file_;
  bool file_lacks_lines_ = false;
  bool terminal_lacks_lines_ = false;
  bool leaves_out_ = false;
};

/// Columns of the terminal on standard output; 80 if unknown.
int terminal_width();

struct ProgressStep {
  std::int64_t step = 0;  ///< from 1
  double loss = 0.0;
  double tokens_per_s = 0.0;
  double step_s = 0.0;
  std::int64_t memory = 0;  ///< resident bytes of this process
  std::optional<double> loss_scale = {};
};

/// The progress of a run: a bar on a terminal, one plain line every log.every steps in a pipe. In fp16 the loss scale
/// follows the loss. Loss and rate are means over the steps since the last plain line (the loss over finite ones); the
/// other numbers are of the last step. log.txt always has the plain lines, and those of the first and last step.
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
