// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/metrics.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

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

/// The file's lines up to a step, without half-written ones.
std::string lines_until(const std::string& path, std::int64_t step) {
  if (!is_there(path)) return "";
  std::istringstream file(read_whole_file(path, std::numeric_limits<std::int64_t>::max()));
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const auto found = json.is_object() ? json.find("step") : json.end();
    if (found == json.end() || !found->is_number_integer()) continue;
    if (found->get<std::int64_t>() <= step) kept += line + '\n';
  }
  return kept;
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
  return line.dump();
}

MetricsFile::MetricsFile(const std::string& path) : file_(path, LineFile::Open::create) {}

MetricsFile::MetricsFile(const std::string& path, std::int64_t step) {
  write_whole_file(path, lines_until(path, step));
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
