// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_output.cpp: log lines, progress lines and the lines of metrics.jsonl.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"

namespace kozero::io {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

/// KOZERO_TERMINAL: a launcher stands between this rank and a terminal of so many columns; 0 where it does not say.
int told_width() {
  const char* columns = std::getenv("KOZERO_TERMINAL");
  return columns == nullptr ? 0 : std::atoi(columns);
}

/// Whether a line may be written over: https://no-color.org asks for no control sequences, and some terminals have
/// none.
bool wants_plain_text() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
}

}  // namespace

int terminal_width() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int told = told_width();
  return told > 0 ? told : 80;
}

Log Log::on_standard_output() {
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
  if (terminal_lacks_lines_ || !file_.is_open() || terminal_->good()) return;
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

namespace {
constexpr double kMemoryOfMean = 0.9;
constexpr std::int64_t kBarWidth = 16;
constexpr auto kRefresh = std::chrono::milliseconds(100);
}  // namespace

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
  return fmt::format("{}/{}  loss {:.4f}{}  {} tokens/s  {} left  {} resident", now.step, total_steps_, loss, scale,
                     readable_count(rate),
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

namespace {

using Json = nlohmann::ordered_json;

/// nlohmann-json prints the shortest digits that round-trip, and null for what is not finite.
Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

template <class Map>
Json object_of(const Map& map) {
  Json object = Json::object();
  for (const auto& [key, value] : map) object[key] = value;
  return object;
}

/// What a metrics file holds when a run goes on with it.
struct OldMetrics {
  std::string kept;  ///< the lines up to a step
  std::int64_t lines = 0;
  std::int64_t foreign = 0;  ///< lines that no run wrote; a last one that was cut off is not among them
};

/// Whether a run that was killed may have left the text as the last line.
bool is_cut_off(std::string_view line) {
  constexpr std::string_view kBegin = R"({"step":)";
  return line.starts_with(kBegin.substr(0, line.size()));
}

OldMetrics metrics_in(const std::string& path, std::int64_t step) {
  OldMetrics old;
  std::istringstream file(read_whole_file(path, std::numeric_limits<std::int64_t>::max()));
  for (std::string line; std::getline(file, line);) {
    ++old.lines;
    const Json json = Json::parse(line, nullptr, false);
    const auto found = json.is_object() ? json.find("step") : json.end();
    if (found != json.end() && found->is_number_integer()) {
      if (found->get<std::int64_t>() <= step) old.kept += line + '\n';
    } else if (!file.eof() || !is_cut_off(line)) {
      ++old.foreign;
    }
  }
  return old;
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  Json line = Json::object();
  line["step"] = metrics.step;
  line["tokens"] = metrics.tokens;
  line["loss"] = metrics.loss;
  line["val_loss"] = number_or_null(metrics.val_loss);
  line["grad_norm"] = metrics.grad_norm;
  line["lr"] = metrics.lr;
  line["step_s"] = metrics.step_s;
  line["tokens_per_s"] = metrics.tokens_per_s;
  line["mfu"] = number_or_null(metrics.mfu);
  line["seconds"] = object_of(metrics.seconds);
  line["bytes_sent"] = object_of(metrics.bytes_sent);
  line["memory"] = object_of(metrics.memory);
  line["loss_scale"] = number_or_null(metrics.loss_scale);
  line["skipped"] = metrics.skipped;
  line["skips_in_a_row"] = metrics.skips_in_a_row;
  line["time"] = metrics.time;
  line["epoch"] = metrics.epoch;
  line["bytes_across_groups"] = metrics.bytes_across_groups;
  return line.dump();
}

MetricsFile::MetricsFile(const std::string& path) : file_(path, LineFile::Open::create) {}

MetricsFile::MetricsFile(const std::string& path, std::int64_t step) {
  const bool was_there = is_there(path);
  const OldMetrics old = was_there ? metrics_in(path, step) : OldMetrics();
  if (old.foreign > 0) {
    note_ = fmt::format("{}: {} of its {} lines are not metrics: it is kept as {}, and the other lines go on here",
                        path, old.foreign, old.lines, set_aside(path));
  } else if (was_there && old.lines == 0 && step > 0) {
    note_ = fmt::format("{} was empty: the metrics of steps 1 to {} are missing", path, step);
  }
  write_whole_file(path, old.kept);
  file_ = LineFile(path, LineFile::Open::append);
}

void MetricsFile::write(const StepMetrics& metrics) {
  try {
    file_.append(to_json_line(metrics));
  } catch (const Error& problem) {
    throw Error(problem.failure(), std::string(problem.what()) + " (step " + std::to_string(metrics.step) + ")");
  }
}

}  // namespace kozero::io
