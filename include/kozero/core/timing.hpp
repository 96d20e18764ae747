// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timing.hpp: the position of the main thread, seconds by phase of a step, and medians of repeated measurements. The
// main thread writes the position; any thread reads it. Phases are timed without a fence. The header includes no
// Kokkos.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kozero {

// The position of this process's main thread, for reports of ranks that wait in vain.
//   { const Phase phase("evaluation"); ... }      position().step = 12;      position().unit = 3;
// Written by the main thread, read by any thread. Names are string literals.

struct Position {
  std::atomic<const char*> phase{"start-up"};
  std::atomic<std::int64_t> step{0};  ///< 0: before the first
  std::atomic<int> unit{-1};          ///< unit of the newest collective (lookups: behind the table's units); -1: none
};

inline Position& position() {
  static Position here;
  return here;
}

/// Sets the phase's name from construction to destruction.
class Phase {
 public:
  explicit Phase(const char* name) : before_(position().phase.exchange(name)) {}
  ~Phase() { position().phase = before_; }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const char* before_;
};

// Seconds by phase of a step.
//   { auto timer = timeline.phase("forward_backward"); ... }     from construction to destruction, without a fence
// The trainer reads and clears the sums once a step. A phase also sets the position's phase.

class Timeline {
 public:
  class Scope {
   public:
    Scope(Timeline& timeline, const char* name)
        : timeline_(timeline), name_(name), phase_(name), start_(Clock::now()) {}
    ~Scope() { timeline_.seconds_[name_] += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    Timeline& timeline_;
    const char* name_;
    Phase phase_;
    Clock::time_point start_;
  };

  [[nodiscard]] Scope phase(const char* name) { return Scope(*this, name); }
  [[nodiscard]] const std::map<std::string, double>& seconds() const { return seconds_; }
  void clear() { seconds_.clear(); }

 private:
  std::map<std::string, double> seconds_;
};

// The median of repeated measurements, and a sample of bounded size of a long series of them.

/// The upper of the two middle values if their number is even; 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Every stride-th value of a series of any length, the first value included. The stride is 1 until kCapacity values
/// are kept; then every second value is dropped and the stride doubles, as often as needed. All memory is taken at
/// once.
class ThinnedSeries {
 public:
  static constexpr std::size_t kCapacity = 4096;

  ThinnedSeries() { values_.reserve(kCapacity); }

  void add(double value) {
    if (count_++ % stride_ != 0) return;
    if (values_.size() == kCapacity) {
      halve();
      if ((count_ - 1) % stride_ != 0) return;
    }
    values_.push_back(value);
  }
  [[nodiscard]] const std::vector<double>& values() const { return values_; }

 private:
  void halve() {
    for (std::size_t i = 0; 2 * i < values_.size(); ++i) values_[i] = values_[2 * i];
    values_.resize(values_.size() / 2);
    stride_ *= 2;
  }

  std::vector<double> values_;
  std::int64_t count_ = 0;  // of the series
  std::int64_t stride_ = 1;
};

}  // namespace kozero
