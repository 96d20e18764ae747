// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// median.hpp: the middle of measured values: what is said of many times. The upper one of an even number; 0 of none.
#pragma once
#include <algorithm>
#include <vector>

namespace kozero {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace kozero
