// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rope.hpp: rotary position embedding of query and key heads, in place, its gradient, and its frequencies.
//   (a, b) -> (a cos - b sin, b cos + a sin),  a = head(i), b = head(i + D/2), angle(t, i) = t f(i),  i < D/2
//   f(i) = theta^(-2i/D)
// The row of qkv (N, heads * D) is q heads | k heads | v heads; the first `heads_to_rotate` heads turn. Row n has
// position n mod T, T the rows of the tables (T, D/2); the functions `_at` are given the positions. Backward turns the
// gradient back by the same angle. Hugging Face's pairing of halves. Runs on `space` and returns without fencing.
// Su et al. 2021, arXiv:2104.09864.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"

namespace kozero::kernels {

/// The frequency of each pair of channels, with Llama 3's scaling of the low frequencies.
///   f(i) = theta^(-2i/D)       turns(i) = original_seq f(i) / 2 pi, in the window that the model was first trained on
///   f'(i) = s f(i) + (1 - s) f(i) / factor,    s = (turns(i) - low) / (high - low) clamped to [0, 1]
/// A pair that turns more than `high` times is unchanged; a pair that turns less than `low` times is slowed by
/// `factor`. Factor 1 gives exactly f. Requires low < high. The scaling of Llama 3.1's reference model; rope_type
/// "llama3" in transformers.
struct RopeFrequencies {
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_seq = 8192.0;

  /// Radians per position of pair i of D/2 = `half`.
  [[nodiscard]] KOKKOS_INLINE_FUNCTION double operator()(std::int64_t i, std::int64_t half) const {
    const double plain = portable_pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    const double turns = original_seq * plain / (2.0 * Kokkos::numbers::pi);
    const double share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
    const double slowed = share < 0.0 ? 1.0 : share > 1.0 ? 0.0 : 1.0 - share;
    return plain * (1.0 - slowed * (1.0 - 1.0 / factor));
  }
};

/// Fills the tables (T, D/2); angles are in double. A block of positions computes each frequency once.
template <class Space>
static void rope_tables(const Space& space, Matrix<float> cosines, Matrix<float> sines,
                        const RopeFrequencies& frequencies) {
  const auto half = static_cast<std::int64_t>(cosines.extent(1));
  require(sines.extent(0) == cosines.extent(0) && sines.extent(1) == cosines.extent(1),
          "rope_tables: cosines and sines differ in shape");
  constexpr std::int64_t kBlock = 32;
  const auto positions = static_cast<std::int64_t>(cosines.extent(0));
  for_each_row(
      space, "kozero::rope_tables", (positions + kBlock - 1) / kBlock,
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t block) {
        const std::int64_t end = positions < (block + 1) * kBlock ? positions : (block + 1) * kBlock;
        for_each_column(team, half, [&](std::int64_t i) {
          const double frequency = frequencies(i, half);
          for (std::int64_t t = block * kBlock; t < end; ++t) {
            const SinCos turn = portable_sin_cos(static_cast<double>(t) * frequency);
            cosines(t, i) = static_cast<float>(turn.cos);
            sines(t, i) = static_cast<float>(turn.sin);
          }
        });
      });
}

/// Replaces the two consecutive halves of each head by f(first[i], second[i], x[i]...). A GPU processes all heads at
/// once, since one head has too few channels for a warp.
template <class Team, class T, class F, class... In>
KOKKOS_INLINE_FUNCTION void assign_halves(const Team& team, T* heads, std::int64_t count, std::int64_t half, const F& f,
                                          const In*... x) {
  KOKKOS_IF_ON_HOST((for (std::int64_t head = 0; head < count; ++head) {
    T* const first = heads + head * 2 * half;
    assign_rows(team, first, first + half, half, f, first, first + half, x...);
  }))
  KOKKOS_IF_ON_DEVICE(
      (constexpr int kCount = kPackOf<T, In...>; const bool packed = is_aligned(heads, x...);
       for_each_pack<kCount>(team, count * half, packed && half % kCount == 0, [=](auto width, std::int64_t c) {
         constexpr int kWidth = decltype(width)::value;
         const std::int64_t i = c % half;
         T* const first = heads + (c - i) * 2 + i;
         assign_two(first, first + half, f, load_pack<kWidth>(first), load_pack<kWidth>(first + half),
                    load_pack<kWidth>(x + i)...);
       });))
}

/// Turns the heads by `direction` (1 or -1) times their angle; row n has position position_of(n).
template <class Space, class T, class Positions>
static void rope_rotate(const Space& space, const std::string& label, Matrix<T> qkv, std::int64_t heads_to_rotate,
                        Matrix<const float> cosines, Matrix<const float> sines, float direction,
                        const Positions& position_of) {
  const auto half = static_cast<std::int64_t>(cosines.extent(1));
  require(sines.extent(0) == cosines.extent(0) && sines.extent(1) == cosines.extent(1) &&
              heads_to_rotate * 2 * half <= static_cast<std::int64_t>(qkv.extent(1)),
          label + ": the tables (T, D/2) do not fit the heads of qkv");
  for_each_row(
      space, label, static_cast<std::int64_t>(qkv.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const float* const cosine = row_of(cosines, position_of(n));
        const float* const sine = row_of(sines, position_of(n));
        const auto turned = [=](float a, float b, float c, float s) {
          return TwoValues{a * c - b * (direction * s), b * c + a * (direction * s)};
        };
        assign_halves(team, row_of(qkv, n), heads_to_rotate, half, turned, cosine, sine);
      });
}

inline RepeatedPositions all_positions(const Matrix<const float>& table) {
  return {static_cast<std::int64_t>(table.extent(0))};
}

template <class Space, class T>
void rope_forward(const Space& space, Matrix<T> qkv, std::int64_t heads_to_rotate, std::int64_t head_dim,
                  Matrix<const float> cosines, Matrix<const float> sines) {
  require(head_dim == 2 * static_cast<std::int64_t>(cosines.extent(1)), "rope_forward: the tables are not (T, D/2)");
  rope_rotate(space, "kozero::rope_forward", qkv, heads_to_rotate, cosines, sines, 1.0F, all_positions(cosines));
}

/// The same for rows at given positions, each below T: RowPositions or GivenPositions.
template <class Space, class T, class Positions>
void rope_forward_at(const Space& space, Matrix<T> qkv, std::int64_t heads_to_rotate, const Positions& row_positions,
                     Matrix<const float> cosines, Matrix<const float> sines) {
  require(row_positions.positions.extent(0) == qkv.extent(0), "rope_forward_at: not one position for each row of qkv");
  rope_rotate(space, "kozero::rope_forward_at", qkv, heads_to_rotate, cosines, sines, 1.0F, row_positions);
}

template <class Space, class T>
void rope_backward(const Space& space, Matrix<T> dqkv, std::int64_t heads_to_rotate, std::int64_t head_dim,
                   Matrix<const float> cosines, Matrix<const float> sines) {
  require(head_dim == 2 * static_cast<std::int64_t>(cosines.extent(1)), "rope_backward: the tables are not (T, D/2)");
  rope_rotate(space, "kozero::rope_backward", dqkv, heads_to_rotate, cosines, sines, -1.0F, all_positions(cosines));
}

template <class Space, class T>
void rope_backward_at(const Space& space, Matrix<T> dqkv, std::int64_t heads_to_rotate,
                      const GivenPositions& row_positions, Matrix<const float> cosines, Matrix<const float> sines) {
  require(row_positions.positions.extent(0) == dqkv.extent(0), "rope_backward_at: not one position for each row");
  rope_rotate(space, "kozero::rope_backward_at", dqkv, heads_to_rotate, cosines, sines, -1.0F, row_positions);
}

}  // namespace kozero::kernels
