// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watch.cpp: the command `watch`: a run's state, progress, curve, memory and ranks on one screen, drawn again and
// again. It only reads the run's files. New rows of metrics are read from where the last look ended.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/train/run_files.hpp>
#include "io/deck/deck.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_output.hpp"
#include "io/run/run_status.hpp"

namespace kozero::commands {

using program::OptionParser;

namespace {

constexpr int kCurveRows = 9;
constexpr int kMostWidth = 120;
constexpr std::size_t kMostPoints = 4096;  // of a curve in memory; neighbors are then joined

using Json = nlohmann::json;

/// The places of numbers in kKeys.
enum Key : std::size_t { loss, val_loss, grad_norm, lr, step_s, tokens_per_s, time };
constexpr std::array<std::string_view, 7> kKeys = {"loss",   "val_loss",     "grad_norm", "lr",
                                                   "step_s", "tokens_per_s", "time"};

/// What metrics.jsonl has said so far.
class Progress {
 public:
  struct Point {
    double step, loss;  ///< means over `steps_in_point_` steps
  };

  /// Reads the rows that came since the last call. Another file, or one that became shorter, is read anew: the run was
  /// resumed. Returns whether it is.
  bool look(const std::string& path) {
    if (!io::is_there(path)) return false;
    const io::FileDescriptor file(path, io::FileDescriptor::Use::read);
    struct stat now {};
    ::fstat(file.number(), &now);
    const bool is_other = now.st_ino != inode_ || file.size() < read_;
    if (is_other) *this = Progress();
    inode_ = now.st_ino;
    read_rows(file);
    return is_other;
  }

  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] const std::array<double, kKeys.size()>& newest() const { return newest_; }
  /// The newest that was measured; NaN: none.
  [[nodiscard]] double val_loss() const { return val_loss_; }
  [[nodiscard]] std::int64_t val_step() const { return val_step_; }
  [[nodiscard]] const std::string& row() const { return row_; }
  [[nodiscard]] double smooth_step_s() const { return smooth_step_s_; }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

 private:
  static constexpr std::int64_t kMostAtOnce = std::int64_t{16} << 20;

  void read_rows(const io::FileDescriptor& file) {
    std::string bytes(static_cast<std::size_t>(std::min(file.size() - read_, kMostAtOnce)), '\0');
    for (; !bytes.empty(); bytes.resize(static_cast<std::size_t>(std::min(file.size() - read_, kMostAtOnce)))) {
      bytes.resize(static_cast<std::size_t>(file.read_up_to(bytes, read_)));
      const std::size_t end = bytes.rfind('\n');
      if (end == std::string::npos) return;  // an incomplete line
      std::string_view rest = std::string_view(bytes).substr(0, end + 1);
      read_ += static_cast<std::int64_t>(rest.size());
      for (; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1)) take(rest.substr(0, rest.find('\n')));
    }
  }

  void take(std::string_view line) {
    std::array<double, kKeys.size()> values{};
    const auto step = io::read_metrics_row(line, kKeys, values);
    if (!step) return;
    step_ = *step;
    newest_ = values;
    row_ = line;
    if (!std::isnan(values[Key::val_loss])) {
      val_loss_ = values[Key::val_loss];
      val_step_ = *step;
    }
    constexpr double kMemoryOfMean = 0.9;
    const double seconds = values[Key::step_s];
    smooth_step_s_ = smooth_step_s_ == 0.0 ? seconds : kMemoryOfMean * smooth_step_s_ + (1.0 - kMemoryOfMean) * seconds;
    if (std::isfinite(values[Key::loss])) add({static_cast<double>(*step), values[Key::loss]});
  }

  void add(const Point& point) {
    sum_.step += point.step;
    sum_.loss += point.loss;
    if (++in_sum_ < steps_in_point_) return;
    points_.push_back({sum_.step / static_cast<double>(in_sum_), sum_.loss / static_cast<double>(in_sum_)});
    sum_ = {};
    in_sum_ = 0;
    if (points_.size() < kMostPoints) return;
    for (std::size_t i = 0; i < points_.size() / 2; ++i) {
      const Point &a = points_[2 * i], &b = points_[2 * i + 1];
      points_[i] = {(a.step + b.step) / 2.0, (a.loss + b.loss) / 2.0};
    }
    points_.resize(points_.size() / 2);
    steps_in_point_ *= 2;
  }

  ino_t inode_ = 0;
  std::int64_t read_ = 0, step_ = 0, val_step_ = 0;
  std::array<double, kKeys.size()> newest_{};
  std::string row_;
  double val_loss_ = std::numeric_limits<double>::quiet_NaN();
  double smooth_step_s_ = 0.0;
  std::vector<Point> points_;
  Point sum_{};
  std::int64_t in_sum_ = 0, steps_in_point_ = 1;
};

/// The curve as lines of text: in each column the mean of its steps.
std::vector<std::string> curve_of(const std::vector<Progress::Point>& points, double last_step, int width) {
  constexpr int kMargin = 10;
  std::vector<std::string> lines;
  if (points.empty()) return lines;
  const auto columns = static_cast<std::size_t>(std::max(width - kMargin, 10));
  std::vector<double> sums(columns), counts(columns);
  for (const auto& point : points) {
    const auto column = std::min(columns - 1, static_cast<std::size_t>(static_cast<double>(columns) *
                                                                       (point.step - 1.0) / std::max(last_step, 1.0)));
    sums[column] += point.loss;
    ++counts[column];
  }
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (std::size_t c = 0; c < columns; ++c) {
    if (counts[c] == 0.0) continue;
    sums[c] /= counts[c];
    low = std::min(low, sums[c]);
    high = std::max(high, sums[c]);
  }
  const double unit = std::max(high - low, 1e-9) / (kCurveRows - 1);
  lines.assign(kCurveRows, std::string(columns, ' '));
  for (std::size_t c = 0; c < columns; ++c) {
    if (counts[c] > 0.0) lines[static_cast<std::size_t>(std::lround((high - sums[c]) / unit))][c] = '*';
  }
  for (int r = 0; r < kCurveRows; ++r) {
    const bool is_labeled = r == 0 || r == kCurveRows - 1;
    auto& line = lines[static_cast<std::size_t>(r)];
    const std::string label = is_labeled ? io::loss_text(r == 0 ? high : low) : "";
    line = fmt::format("{:>9}|", label + (label.size() < 9 ? " " : "")) + line;
  }
  lines.push_back(fmt::format("{:>10}{:>{}}", 1, fmt::format("step {:.0f}", last_step), columns));
  return lines;
}

/// A member of the object under "memory"; 0 if it is absent.
std::int64_t memory_in(const std::string& row, const std::string& key) {
  const Json object = Json::parse(row, nullptr, false);
  return object.is_object() && object.contains("memory") ? object["memory"].value(key, std::int64_t{0}) : 0;
}

/// "2 ranks on vm at work", "rank 1 on vm (process 12) is gone".
std::string ranks_line(const std::string& folder, const std::string& state) {
  const std::vector<io::RankProcess> ranks = io::ranks_in(folder);
  if (ranks.empty() || state != "running") return "";
  std::string gone;
  std::size_t here = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].host != host_name()) continue;
    ++here;
    if (io::is_gone(ranks[r]))
      gone += fmt::format("{}rank {} (process {}) is gone", gone.empty() ? "" : ", ", r, ranks[r].pid);
  }
  const std::string elsewhere =
      here == ranks.size() ? "" : fmt::format(", {} of them on other hosts, not looked at", ranks.size() - here);
  return fmt::format("ranks        {}{}{}", ranks.size(), elsewhere,
                     !gone.empty() ? ": " + gone
                     : here > 0    ? ": all on this host live"
                                   : "");
}

class Watch {
 public:
  explicit Watch(std::string folder) : folder_(std::move(folder)) { read_deck(); }

  [[nodiscard]] std::vector<std::string> screen(int width) {
    if (progress_.look(folder_ + "/" + io::kMetricsFile)) read_deck();  // a resume may give more steps
    const io::RunStatus status = io::status_of_run(folder_);
    std::vector<std::string> lines = {fmt::format("{}: {}", folder_, state_text(status))};
    const std::int64_t step = progress_.step();
    if (step == 0) {
      lines.emplace_back("no step is done yet");
    } else {
      lines.push_back(progress_line(step, status.state));
      lines.push_back(loss_line());
      lines.push_back(rate_line());
      lines.push_back(fmt::format("memory       {} resident, {} at most (rank 0)",
                                  io::readable_bytes(memory_in(progress_.row(), "resident")),
                                  io::readable_bytes(memory_in(progress_.row(), "peak"))));
    }
    const std::string checkpoint = train::newest_checkpoint(folder_);
    lines.push_back("checkpoint   " + (checkpoint.empty() ? std::string("none") : checkpoint));
    if (const std::string ranks = ranks_line(folder_, status.state); !ranks.empty()) lines.push_back(ranks);
    for (auto& line : curve_of(progress_.points(), static_cast<double>(std::max(steps_, step)), width)) {
      lines.push_back(std::move(line));
    }
    for (auto& line : lines) line = io::printable_line(line).substr(0, static_cast<std::size_t>(width));
    return lines;
  }

 private:
  void read_deck() {
    try {
      steps_ = io::read_deck(folder_ + "/" + io::kDeckFile).run.steps;
    } catch (const Error&) {  // it may be a deck of another version, or not there yet
      steps_ = 0;
    }
  }

  [[nodiscard]] static std::string state_text(const io::RunStatus& status) {
    if (status.state.empty()) return "no status";
    return status.state + (status.why.empty() ? "" : ": " + status.why);
  }

  [[nodiscard]] std::string progress_line(std::int64_t step, const std::string& state) const {
    std::string line = fmt::format("step         {}", step);
    if (steps_ > 0)
      line += fmt::format(" of {}, {:.0f} %", steps_, 100.0 * static_cast<double>(step) / static_cast<double>(steps_));
    const double since = io::seconds_since_1970() - progress_.newest()[Key::time];
    if (state == "running") {
      if (steps_ > step) {
        line += ", " + io::readable_seconds(progress_.smooth_step_s() * static_cast<double>(steps_ - step)) + " left";
      }
      line += fmt::format("; the last one ended {} ago", io::readable_seconds(std::max(since, 0.0)));
    }
    return line;
  }

  [[nodiscard]] std::string loss_line() const {
    const std::string line = "loss         " + io::loss_text(progress_.newest()[Key::loss]);
    return progress_.val_step() == 0 ? line
                                     : line + fmt::format(", validation {} (step {})",
                                                          io::loss_text(progress_.val_loss()), progress_.val_step());
  }

  [[nodiscard]] std::string rate_line() const {
    const auto& newest = progress_.newest();
    return fmt::format("rate         {} tokens/s, {} s per step; lr {:.2e}, norm {}",
                       io::readable_count(newest[Key::tokens_per_s]), io::loss_text(newest[Key::step_s]),
                       newest[Key::lr], io::loss_text(newest[Key::grad_norm]));
  }

  std::string folder_;
  std::int64_t steps_ = 0;
  Progress progress_;
};

std::atomic<bool> stop_asked = false;

/// The terminal without echo and without waiting for whole lines, on its other screen; as before at the end.
class Screen {
 public:
  Screen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    for (const int kind : {SIGINT, SIGTERM, SIGHUP}) ::signal(kind, [](int) { stop_asked = true; });
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  ~Screen() {
    std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static void show(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (const auto& line : lines) text += line + "\x1b[K\n";
    std::cout << text << "\x1b[J" << std::flush;
  }
  /// Waits; true if the user wants to leave.
  static bool left(double seconds) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, static_cast<int>(1e3 * seconds)) <= 0) return stop_asked;
    char letter = 0;
    return ::read(STDIN_FILENO, &letter, 1) <= 0 || letter == 'q' || stop_asked;
  }

 private:
  termios before_{};
};

}  // namespace

void watch(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("watch");
  std::string folder;
  double every = 1.0;
  bool once = false;
  parser.add("run", folder).required();
  parser.add("--every", every, "seconds between two looks").type_name("S");
  parser.add_flag("--once", once, "print the screen once; the default if this is no terminal");
  parser.parse(arguments);
  if (!(every >= 0.1 && every <= 3600.0)) {
    throw Error(Failure::deck, fmt::format("--every {}: accepted are 0.1 to 3600 seconds", every),
                Error::Seen::by_all_ranks);
  }
  if (environment.rank() != 0) return;
  if (!io::holds_run(folder)) {
    throw Error(Failure::input, folder + ": accepted is the folder of a run; this one has no log.txt or status.json");
  }
  Watch run(folder);
  const auto width = [] { return std::min(io::terminal_width(), kMostWidth); };
  if (once || ::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    for (const auto& line : run.screen(width())) std::cout << line << '\n';
    std::cout << std::flush;
    return;
  }
  const Screen screen;
  do {
    auto lines = run.screen(width());
    lines.emplace_back("q: leave");
    Screen::show(lines);
  } while (!Screen::left(every));
}

}  // namespace kozero::commands
