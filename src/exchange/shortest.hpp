// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shortest.hpp: the double that prints as a float's shortest decimal: 1e-5F -> 1e-5, not 9.99999974737875e-06.
// It rounds to the same float again, so nothing is lost on the way through a text.      Steele, White, PLDI 1990.
#pragma once
#include <array>
#include <charconv>

namespace kozero::exchange {

inline double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0.0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

}  // namespace kozero::exchange
