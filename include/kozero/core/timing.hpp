// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// timing.hpp: medians of repeated measurements, and a sample of bounded size of a long series.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace kozero {

/// The upper of the two middle values if their number is even; 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Every stride-th value of a series of any length, the first value included. The stride is 1 until kCapacity values
/// are kept; then every second value is dropped and the stride doubles, as often as needed. All memory is allocated at
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
