// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_output.cpp: a log's two outputs, each of which may be lost, the status line, and the progress bar.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/core/output.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"

namespace kozero::io {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

/// KOZERO_TERMINAL, the columns of a terminal behind a launcher; 0 if it is not set.
int told_width() {
  const char* columns = std::getenv("KOZERO_TERMINAL");
  return columns == nullptr ? 0 : std::atoi(columns);
}

/// Whether lines must not be overwritten: https://no-color.org forbids control sequences, and some terminals have
/// none.
bool wants_plain_text() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
}

constexpr double kMemoryOfMean = 0.9;
constexpr std::int64_t kBarWidth = 16;
constexpr auto kRefresh = std::chrono::milliseconds(100);

}  // namespace

int terminal_width() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int told = told_width();
  return told > 0 ? told : 80;
}

Log Log::on_standard_output() {
  keep_from_waiting_for_reader();
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0 || told_width() > 0;
  return Log(std::cout, is_terminal && !wants_plain_text());
}

Log::~Log() {
  if (status_shown_) status("");
}

void Log::record_in(const std::string& path) {
  if (terminal_ == nullptr) return;
  file_ = LineFile(path, LineFile::Open::append);
}

void Log::say(std::string_view given) {
  if (terminal_ == nullptr) return;
  if (status_shown_) status("");
  const std::string line = printable_line(given);
  *terminal_ << line << '\n' << std::flush;
  note_lost_terminal();
  note(line);
}

void Log::note_lost_terminal() {
  if (terminal_lacks_lines_ || !file_.is_open()) return;
  if (terminal_->good()) {
    const bool leaves_out = lines_left_out_of_standard_output() > 0;
    if (leaves_out && !leaves_out_) {
      note("warning      nobody reads standard output; training continues; this file has the lines missing there");
    }
    leaves_out_ = leaves_out;
    return;
  }
  terminal_lacks_lines_ = true;
  interactive_ = false;
  note("warning      standard output cannot be written any more; training goes on, and its lines are here alone");
}

void Log::note(std::string_view line) {
  if (!file_.is_open()) return;
  try {
    file_.append(printable_line(line));
    file_lacks_lines_ = false;
  } catch (const Error& problem) {
    if (file_lacks_lines_) return;
    file_lacks_lines_ = true;
    if (status_shown_) status("");
    *terminal_ << "warning      " << problem.what() << "; lines are missing there until it can be written again\n"
               << std::flush;
  }
}

void Log::status(std::string_view line) {
  if (!interactive_) return;
  *terminal_ << kClearLine << line.substr(0, static_cast<std::size_t>(terminal_width() - 1)) << std::flush;
  status_shown_ = !line.empty();
}

void Progress::add(const ProgressStep& now) {
  sums_.tokens += now.tokens_per_s * now.step_s;
  sums_.seconds += now.step_s;
  if (!std::isfinite(now.loss)) return;
  sums_.loss += now.loss;
  ++sums_.losses;
}

std::string Progress::figures(const ProgressStep& now) const {
  const std::string scale = now.loss_scale ? fmt::format("  scale {:.0f}", *now.loss_scale) : "";
  const double loss = sums_.losses > 0 ? sums_.loss / static_cast<double>(sums_.losses) : now.loss;
  const double rate = sums_.seconds > 0.0 ? sums_.tokens / sums_.seconds : now.tokens_per_s;
  return fmt::format("{}/{}  loss {}{}  {} tokens/s  {} left  {} resident", now.step, total_steps_, loss_text(loss),
                     scale, readable_count(rate),
                     readable_seconds(static_cast<double>(total_steps_ - now.step) * smooth_step_s_),
                     readable_bytes(now.memory));
}

std::string Progress::bar(const ProgressStep& now) const {
  const auto done =
      std::clamp<std::int64_t>(kBarWidth * now.step / std::max<std::int64_t>(1, total_steps_), 0, kBarWidth);
  std::string bar(static_cast<std::size_t>(done), '=');
  if (done < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  return "[" + bar + "]  " + figures(now);
}

void Progress::update(const ProgressStep& now) {
  smooth_step_s_ =
      smooth_step_s_ == 0.0 ? now.step_s : kMemoryOfMean * smooth_step_s_ + (1.0 - kMemoryOfMean) * now.step_s;
  add(now);
  const bool last = now.step == total_steps_;
  const bool wanted = now.step == 1 || last || (every_ > 0 && now.step % every_ == 0);
  if (wanted) {
    const std::string line = "step " + figures(now);
    log_.interactive() ? log_.note(line) : log_.say(line);
  }
  if (!log_.interactive()) {
    if (wanted) sums_ = {};
    return;
  }
  const auto clock = std::chrono::steady_clock::now();
  if (last) {
    log_.status("");
  } else if (clock - shown_ >= kRefresh) {
    log_.status(bar(now));
    shown_ = clock;
  }
  if (wanted) sums_ = {};
}

}  // namespace kozero::io
