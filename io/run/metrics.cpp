// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// metrics.cpp: writes rows as text, finds numbers in a row's text without a JSON tree, and trims the file of a resume.
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::io {
namespace {

/// The number that is all of the text; nullopt for null and any other text.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// Iterates over the members of an object's text; nested values are skipped.
class Members {
 public:
  explicit Members(std::string_view object) : rest_(trimmed(object)) {}

  /// The next "key": value; false at the end, or if the text is not an object.
  bool next(std::string_view& key, std::string_view& value) {
    if (!rest_.starts_with('{') && !rest_.starts_with(',')) return false;
    std::string_view text = trimmed(rest_.substr(1));
    const std::size_t end = text.find('"', 1);
    if (!text.starts_with('"') || end == std::string_view::npos) return false;
    key = text.substr(1, end - 1);
    text = trimmed(text.substr(end + 1));
    if (!text.starts_with(':')) return false;
    rest_ = text.substr(1);
    const std::size_t extent = extent_of_value();
    value = trimmed(rest_.substr(0, extent));
    rest_.remove_prefix(extent);
    return !rest_.empty();
  }
  [[nodiscard]] bool is_whole() const { return rest_ == "}"; }

 private:
  /// Characters up to the comma or brace after the value.
  [[nodiscard]] std::size_t extent_of_value() const {
    int depth = 0;
    bool in_text = false;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const char letter = rest_[i];
      if (in_text) {
        if (letter == '\\') ++i;
        in_text = letter != '"';
        continue;
      }
      if (letter == '"') in_text = true;
      if (letter == '{' || letter == '[') ++depth;
      if (depth == 0 && (letter == ',' || letter == '}')) return i;
      if (letter == '}' || letter == ']') --depth;
    }
    return rest_.size();
  }

  std::string_view rest_;
};

using Json = nlohmann::ordered_json;

/// nlohmann-json prints the shortest digits that round-trip, and null for a number that is not finite.
Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

template <class Map>
Json object_of(const Map& map) {
  Json object = Json::object();
  for (const auto& [key, value] : map) object[key] = value;
  return object;
}

/// The contents of a metrics file with which a run continues.
struct OldMetrics {
  std::string kept;  ///< the lines up to a step
  std::int64_t lines = 0;
  std::int64_t foreign = 0;  ///< lines that no run wrote, except a last incomplete line
};

/// Whether the text may be the incomplete last line of a killed run.
bool is_cut_off(std::string_view line) {
  constexpr std::string_view kBegin = R"({"step":)";
  return line.starts_with(kBegin.substr(0, line.size()));
}

OldMetrics metrics_in(const std::string& path, std::int64_t step) {
  OldMetrics old;
  std::istringstream file(read_whole_file(path, std::numeric_limits<std::int64_t>::max()));
  for (std::string line; std::getline(file, line);) {
    ++old.lines;
    if (const auto found = read_metrics_row(line, {}, {})) {
      if (*found <= step) old.kept += line + '\n';
    } else if (!file.eof() || !is_cut_off(line)) {
      ++old.foreign;
    }
  }
  return old;
}

}  // namespace

std::optional<std::int64_t> read_metrics_row(std::string_view line, std::span<const std::string_view> keys,
                                             std::span<double> values) {
  require(keys.size() == values.size(), "read_metrics_row: as many values as keys");
  std::fill(values.begin(), values.end(), std::numeric_limits<double>::quiet_NaN());
  std::optional<std::int64_t> step;
  Members members(line);
  for (std::string_view key, value; members.next(key, value);) {
    if (key == "step") step = number_of<std::int64_t>(value);
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) continue;
    if (const auto number = number_of<double>(value)) values[static_cast<std::size_t>(found - keys.begin())] = *number;
  }
  return members.is_whole() ? step : std::nullopt;
}

void read_metrics_lines(const std::string& path, const std::function<void(std::string_view line)>& use) {
  { const FileDescriptor regular(path, FileDescriptor::Use::read); }  // no FIFO, which may hang
  std::ifstream file(path);
  if (!file) throw Error(Failure::input, path + ": cannot be read");
  for (std::string line; std::getline(file, line);) use(line);
  if (file.bad()) throw Error(Failure::input, path + ": cannot be read to its end");
}

void read_metrics(const std::string& path, std::span<const std::string_view> keys,
                  const std::function<void(std::int64_t step, std::span<const double> values)>& row) {
  std::vector<double> values(keys.size());
  read_metrics_lines(path, [&](std::string_view line) {
    if (const auto step = read_metrics_row(line, keys, values)) row(*step, values);
  });
}

std::optional<std::int64_t> newest_metrics_step(const std::string& path) {
  constexpr std::int64_t kTail = 64 << 10;
  std::string tail(static_cast<std::size_t>(kTail), '\0');
  try {
    const FileDescriptor file(path, FileDescriptor::Use::read);  // not a FIFO, which may hang
    const auto size = file.read_up_to(tail, std::max<std::int64_t>(0, file.size() - kTail));
    tail.resize(static_cast<std::size_t>(size));
  } catch (const Error&) {
    return std::nullopt;
  }
  std::optional<std::int64_t> newest;
  std::istringstream lines(tail);
  for (std::string line; std::getline(lines, line);) {
    if (const auto step = read_metrics_row(line, {}, {})) newest = step;
  }
  return newest;
}

std::string loss_text(double value) {
  const bool is_small = value != 0.0 && std::abs(value) < 0.1;
  return is_small ? fmt::format("{:#.4g}", value) : fmt::format("{:.4f}", value);
}

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
  line["calls"] = object_of(metrics.calls);
  for (const auto& [name, source] : metrics.val_sources) {
    line["val_sources"][name] = {{"loss", number_or_null(source.loss)},
                                 {"bits_per_byte", number_or_null(source.bits_per_byte)}};
  }
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
