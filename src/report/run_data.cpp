// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_data.cpp: reads a run's folder for a report.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "src/report/run_data.hpp"

namespace kozero::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

enum Key : std::size_t { loss, val_loss, lr, grad_norm, step_s, tokens_per_s, tokens, time };
constexpr std::array<std::string_view, 8> kKeys = {"loss",   "val_loss",     "lr",     "grad_norm",
                                                   "step_s", "tokens_per_s", "tokens", "time"};
constexpr std::size_t kMostCompared = std::size_t{1} << 20;  // losses

/// Every n-th row, with n doubled whenever there are too many.
class SampledRows {
 public:
  void add(std::string_view line) {
    if (seen_++ % every_ != 0) return;
    if (rows_.size() == kMost) {
      for (std::size_t i = 0; i < kMost / 2; ++i) rows_[i] = std::move(rows_[2 * i]);
      rows_.resize(kMost / 2);
      every_ *= 2;
      if ((seen_ - 1) % every_ != 0) return;
    }
    rows_.emplace_back(line);
  }
  /// Without the first row, which has costs of the start, if there are others.
  [[nodiscard]] std::vector<Json> rows() const {
    std::vector<Json> result;
    for (std::size_t i = rows_.size() > 1 ? 1 : 0; i < rows_.size(); ++i) {
      Json row = Json::parse(rows_[i], nullptr, false);
      if (row.is_object()) result.push_back(std::move(row));
    }
    return result;
  }

 private:
  static constexpr std::size_t kMost = 512;
  std::vector<std::string> rows_;
  std::int64_t seen_ = 0, every_ = 1;
};

double median_of(const std::vector<Json>& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows) {
    if (row.contains(key) && row[key].is_number()) values.push_back(row[key].get<double>());
  }
  return values.empty() ? kNone : median(std::move(values));
}

std::map<std::string, double> means_of(const std::vector<Json>& rows, const char* key) {
  std::map<std::string, double> sums;
  double count = 0.0;
  for (const Json& row : rows) {
    if (!row.contains(key) || !row[key].is_object()) continue;
    ++count;
    for (const auto& [name, number] : row[key].items()) {
      if (number.is_number()) sums[name] += number.get<double>();
    }
  }
  for (auto& [name, sum] : sums) sum /= count;
  return sums;
}

/// The curves and the numbers of single steps.
class Reader {
 public:
  Reader(RunData& run, std::size_t points) : run_(run), curves_(7, Curve(std::max<std::size_t>(points / 4, 4) * 2)) {}

  void add(std::string_view line) {
    const auto step = io::read_metrics_row(line, kKeys, values_);
    if (!step) return;
    sampled_.add(line);
    newest_ = line;
    if (run_.rows++ == 0) start_ = values_[time] - values_[step_s];
    run_.last_step = *step;
    if (std::isfinite(values_[tokens])) run_.tokens = values_[tokens];
    if (std::isfinite(values_[time] - start_)) run_.seconds = values_[time] - start_;
    const auto x = static_cast<double>(*step);
    add_loss(x);
    if (std::isfinite(values_[val_loss])) run_.last_val = values_[val_loss];
    add(3, x, values_[val_loss]);
    add(4, x, values_[tokens_per_s]);
    add(5, x, values_[lr]);
    add(6, x, values_[grad_norm]);
  }

  void finish() {
    RunData::Points* const points[] = {&run_.loss_steps, &run_.loss_tokens, &run_.loss_seconds, &run_.val_steps,
                                       &run_.rate_steps, &run_.lr_steps,    &run_.norm_steps};
    for (std::size_t i = 0; i < curves_.size(); ++i) *points[i] = curves_[i].points();
    const std::vector<Json> rows = sampled_.rows();
    run_.step_s = median_of(rows, "step_s");
    run_.tokens_per_s = median_of(rows, "tokens_per_s");
    run_.phases = means_of(rows, "seconds");
    run_.bytes_sent = means_of(rows, "bytes_sent");
    run_.calls = means_of(rows, "calls");
    run_.memory = means_of({Json::parse(newest_, nullptr, false)}, "memory");
  }

 private:
  void add_loss(double step) {
    const double value = values_[loss];
    if (!std::isfinite(value)) {
      if (run_.bad_losses++ == 0) run_.first_bad_step = run_.last_step;
      return;
    }
    if (std::isnan(run_.first_loss)) run_.first_loss = value;
    run_.last_loss = value;
    add(0, step, value);
    add(1, run_.tokens, value);
    add(2, run_.seconds, value);
  }
  void add(std::size_t curve, double x, double y) {
    if (std::isfinite(x) && std::isfinite(y)) curves_[curve].add({x, y});
  }

  RunData& run_;
  std::vector<Curve> curves_;
  std::array<double, kKeys.size()> values_{};
  double start_ = 0.0;
  SampledRows sampled_;
  std::string newest_ = "{}";
};

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r") + 1);
  return text.erase(0, text.find_first_not_of(" \t"));
}

/// The file's text; "" if it cannot be read.
std::string text_of(const std::string& path) {
  try {
    return io::is_there(path) ? io::read_whole_file(path, io::kMaxDeckBytes) : "";
  } catch (const Error&) {
    return "";
  }
}

void read_deck_lines(RunData& run) {
  std::istringstream lines(text_of(run.folder + "/" + io::kDeckFile));
  std::string section;
  bool in_heading = true;
  for (std::string line; std::getline(lines, line);) {
    in_heading = in_heading && line.starts_with("# ");
    if (in_heading && line.size() > 15 && line[14] == ' ') {  // "# command      ..."
      run.heading.emplace(trimmed(line.substr(2, 12)), trimmed(line.substr(15)));
    } else if (line.starts_with("[") && line.ends_with("]")) {
      section = trimmed(line.substr(1, line.size() - 2));
    } else if (const auto equals = line.find(" = "); !line.starts_with("#") && equals != std::string::npos) {
      const auto comment = line.rfind("  # ");  // the value's origin
      run.deck[section + "." + trimmed(line.substr(0, equals))] =
          trimmed(line.substr(equals + 3, comment == std::string::npos ? comment : comment - equals - 3));
    }
  }
}

/// The planned memory, the model's size and the sample text; of a resumed run the newest.
void read_log(RunData& run) {
  std::istringstream lines(text_of(run.folder + "/" + io::kLogFile));
  constexpr std::string_view kPlan = "memory plan  ";
  bool in_sample = false;
  for (std::string line; std::getline(lines, line);) {
    if (in_sample && line.starts_with("    ")) {
      run.sample += trimmed(line) + "\n";
      continue;
    }
    in_sample = line.starts_with("a sample of what it writes");
    if (in_sample) run.sample.clear();
    if (line.starts_with("model  ") &&
        line.find(" M parameters") != std::string::npos) {  // "model        gpt2, ...: 2.00 M parameters in 3 units"
      run.parameters = 1e6 * std::strtod(line.c_str() + line.rfind(": ") + 2, nullptr);
    }
    if (line.starts_with(kPlan)) {
      const std::string amount = line.substr(kPlan.size(), line.find(" of arrays") - kPlan.size());
      if (const auto bytes = io::bytes_of_text(amount)) run.planned_bytes = *bytes;
    }
  }
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_") && name.find('.') == std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

double RunData::in(const std::map<std::string, double>& means, const std::string& name) {
  const auto found = means.find(name);
  return found == means.end() ? 0.0 : found->second;
}

double RunData::communication() const {
  double sum = 0.0;
  for (const auto& [name, number] : bytes_sent) sum += in(phases, name);
  return sum;
}

std::string RunData::value(const std::string& key) const {
  const auto found = deck.find(key);
  return found == deck.end() ? "" : plain_value(found->second);
}

std::string plain_value(const std::string& text) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return fmt::format("{}", number);
  const bool is_quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

RunData read_run(const std::string& folder, std::size_t points) {
  RunData run;
  run.folder = folder;
  read_deck_lines(run);
  read_log(run);
  run.status = io::status_of_run(folder);
  const auto processes = io::ranks_in(folder);
  run.killed = run.status.state == "running" && !processes.empty() && io::is_gone(processes[0]);
  const std::string ranks = run.heading.count("ranks") != 0 ? run.heading.at("ranks") : run.value("run.ranks");
  std::from_chars(ranks.data(), ranks.data() + ranks.size(), run.ranks);
  Reader reader(run, points);
  try {
    io::read_metrics_lines(folder + "/" + io::kMetricsFile, [&](std::string_view line) { reader.add(line); });
  } catch (const Error&) {  // no file yet, or the disk failed: the rows so far
  }
  reader.finish();
  run.checkpoints = checkpoints_in(folder);
  return run;
}

std::vector<double> losses_of(const std::string& folder) {
  constexpr std::array<std::string_view, 1> kLoss = {"loss"};
  std::vector<double> losses;
  io::read_metrics(folder + "/" + io::kMetricsFile, kLoss, [&](std::int64_t step, std::span<const double> values) {
    if (step < 0 || step >= static_cast<std::int64_t>(kMostCompared)) return;
    const auto place = static_cast<std::size_t>(step);
    if (losses.size() <= place) losses.resize(place + 1, kNone);
    losses[place] = values[0];
  });
  return losses;
}

std::int64_t first_other_loss(const std::string& folder, const std::vector<double>& losses) {
  std::int64_t compared = 0;
  const std::vector<double> others = losses_of(folder);
  for (std::size_t i = 0; i < std::min(losses.size(), others.size()); ++i) {
    if (std::isnan(losses[i]) && std::isnan(others[i])) continue;
    ++compared;
    if (std::bit_cast<std::uint64_t>(losses[i]) != std::bit_cast<std::uint64_t>(others[i]))
      return static_cast<std::int64_t>(i);
  }
  return compared == 0 ? -1 : 0;
}

}  // namespace kozero::report
