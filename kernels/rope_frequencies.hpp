// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rope_frequencies.hpp: how fast each pair of channels turns, and Llama 3's stretching of the slow ones.
//   f(i) = theta^(-2i/D)       turns(i) = original_seq f(i) / 2 pi, in the window that the model was first trained on
//   f'(i) = s f(i) + (1 - s) f(i) / factor,    s = (turns(i) - low) / (high - low) held in [0, 1]
// A pair that turns more than `high` times is left alone, one that turns less than `low` times is slowed by `factor`.
// Factor 1 gives f in bits. Needs low < high. The stretching is that of Llama 3.1's reference model, which transformers
// calls rope_type "llama3".      Su et al. 2021, arXiv:2104.09864
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

namespace kozero::kernels {

struct RopeFrequencies {
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_seq = 8192.0;

  /// Radians a position of pair i of D/2 = `half`.
  [[nodiscard]] KOKKOS_INLINE_FUNCTION double operator()(std::int64_t i, std::int64_t half) const {
    const double plain = Kokkos::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    const double turns = original_seq * plain / (2.0 * Kokkos::numbers::pi);
    const double share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
    const double slowed = share < 0.0 ? 1.0 : share > 1.0 ? 0.0 : 1.0 - share;
    return plain * (1.0 - slowed * (1.0 - 1.0 / factor));
  }
};

}  // namespace kozero::kernels
