// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// product_tuning.cpp: the table of algorithms by kind of product, and the timed comparison at a kind's first product.
#include <algorithm>
#include <limits>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/timing.hpp>
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::kernels {
namespace {

constexpr double kLeastGain = 0.03;     // of the default's time
constexpr double kTimedSeconds = 1e-3;  // at least that long between two fences ...
constexpr double kMostRepeats = 100.0;  // ... or so many products

struct Tuning {
  ProductAlgorithms table;
  std::string source;
  std::int64_t version = 0;
  int rounds = 0;  // 0: nothing is measured
  std::vector<TunedProduct> met;
};

Tuning& tuning() {
  static Tuning tuning;
  return tuning;
}

std::string listed(const std::vector<std::string>& algorithms) {
  std::string text;
  for (const auto& algorithm : algorithms) text.append(text.empty() ? "\"" : ", \"").append(algorithm).append("\"");
  return text;
}

void require_algorithm(const std::string& kind, const std::string& algorithm,
                       const std::vector<std::string>& algorithms) {
  if (std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end()) return;
  throw Error(Failure::input, tuning().source + ": \"" + kind + "\" = \"" + algorithm +
                                  "\": there is no such algorithm here; accepted are " + listed(algorithms));
}

/// Seconds per product, of `repeats` consecutive products.
double seconds_of(const std::function<void()>& multiply, int repeats) {
  DeviceMarks marks;
  Device().fence("kozero::product_tuning");
  const auto begin = marks.set();
  for (int i = 0; i < repeats; ++i) multiply();
  const auto end = marks.set();
  Device().fence("kozero::product_tuning");
  return marks.seconds(begin, end) / repeats;
}

/// Repetitions of an algorithm between two fences; 0 if the back end rejects it at run time. The default, the first,
/// must run.
int repeats_of(std::size_t algorithm, const std::function<void(std::size_t)>& multiply) {
  try {
    multiply(algorithm);  // the first call creates plans and buffers
    const double once = seconds_of([&] { multiply(algorithm); }, 1);
    return static_cast<int>(std::clamp(kTimedSeconds / once, 1.0, kMostRepeats));
  } catch (const Error&) {
    if (algorithm == 0) throw;
    return 0;
  }
}

/// Seconds of each algorithm; infinite if it was rejected.
std::vector<double> medians(std::size_t num_algorithms, int rounds, const std::function<void(std::size_t)>& multiply) {
  std::vector<int> repeats;
  for (std::size_t algorithm = 0; algorithm < num_algorithms; ++algorithm)
    repeats.push_back(repeats_of(algorithm, multiply));
  std::vector<std::vector<double>> seconds(num_algorithms);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t algorithm = 0; algorithm < num_algorithms; ++algorithm) {
      const bool refused = repeats[algorithm] == 0;
      seconds[algorithm].push_back(refused ? std::numeric_limits<double>::infinity()
                                           : seconds_of([&] { multiply(algorithm); }, repeats[algorithm]));
    }
  }
  std::vector<double> result;
  for (const auto& of_algorithm : seconds) result.push_back(median(of_algorithm));
  return result;
}

}  // namespace

void use_product_algorithms(ProductAlgorithms algorithms, std::string source) {
  tuning().source = std::move(source);
  const auto known = known_product_algorithms();
  for (const auto& [kind, algorithm] : algorithms) {
    if (!known.empty()) require_algorithm(kind, algorithm, known);
  }
  tuning().table = std::move(algorithms);
  ++tuning().version;
}

const ProductAlgorithms& product_algorithms() { return tuning().table; }

void begin_product_tuning(int rounds) {
  tuning().rounds = rounds;
  tuning().met.clear();
}

std::vector<TunedProduct> end_product_tuning() {
  tuning().rounds = 0;
  return std::exchange(tuning().met, {});
}

std::string kind_name(const char* out, const char* in, const ProductShape& shape) {
  const auto name = [](Op op) { return op == Op::none ? " none" : " transpose"; };
  std::string text = std::string(out) + (shape.accumulate ? " += " : " = ") + in + " x " + in + ", ";
  text += std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k) + ",";
  return text + name(shape.op_a) + name(shape.op_b) + (shape.has_bias ? ", bias" : "");
}

bool tuning_products() { return tuning().rounds > 0; }

std::int64_t product_table_version() { return tuning().version; }

std::size_t listed_algorithm(const std::string& kind, const std::vector<std::string>& algorithms) {
  const auto found = tuning().table.find(kind);
  if (found == tuning().table.end()) return 0;
  require_algorithm(kind, found->second, algorithms);
  return static_cast<std::size_t>(std::find(algorithms.begin(), algorithms.end(), found->second) - algorithms.begin());
}

std::size_t kept_of(const std::vector<double>& seconds) {
  const auto least = std::min_element(seconds.begin(), seconds.end());
  return *least < (1.0 - kLeastGain) * seconds.front() ? static_cast<std::size_t>(least - seconds.begin()) : 0;
}

std::size_t fastest_algorithm(const std::string& kind, const std::vector<std::string>& algorithms,
                              const std::function<void(std::size_t)>& multiply) {
  auto& met = tuning().met;
  const auto known = std::find_if(met.begin(), met.end(), [&](const TunedProduct& one) { return one.kind == kind; });
  if (known != met.end()) {
    ++known->calls;
    return known->kept;
  }
  const std::vector<double> seconds = medians(algorithms.size(), tuning().rounds, multiply);
  met.push_back({kind, algorithms, seconds, kept_of(seconds)});
  return met.back().kept;
}

}  // namespace kozero::kernels
