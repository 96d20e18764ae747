// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rope.hpp: rotary position embedding of query and key heads, in place, and its gradient.
//   (a, b) -> (a cos - b sin, b cos + a sin),  a = head(i), b = head(i + D/2), angle(t, i) = t frequency(i),  i < D/2
// The row of qkv (N, heads * D) is q heads | k heads | v heads; the first `heads_to_rotate` heads turn. Row n has
// position n mod T, T the rows of the tables (T, D/2). Backward turns the gradient back by the same angle. Hugging
// Face's pairing of halves. Returns without fencing.      Su et al. 2021, arXiv:2104.09864.
#pragma once
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/rope_frequencies.hpp>
#include <kozero/kernels/rows.hpp>

namespace kozero::kernels {

/// Fills the tables (T, D/2); angles are in double.
template <class Space>
void rope_tables(const Space& space, Matrix<float> cosines, Matrix<float> sines, const RopeFrequencies& frequencies) {
  const auto half = static_cast<std::int64_t>(cosines.extent(1));
  require(sines.extent(0) == cosines.extent(0) && sines.extent(1) == cosines.extent(1),
          "rope_tables: cosines and sines differ in shape");
  for_each_row(
      space, "kozero::rope_tables", static_cast<std::int64_t>(cosines.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t t) {
        for_each_column(team, half, [&](std::int64_t i) {
          const double angle = static_cast<double>(t) * frequencies(i, half);
          cosines(t, i) = static_cast<float>(Kokkos::cos(angle));
          sines(t, i) = static_cast<float>(Kokkos::sin(angle));
        });
      });
}

/// Turns the heads by `direction` (1 or -1) times their angle.
template <class Space, class T>
void rope_rotate(const Space& space, const std::string& label, Matrix<T> qkv, std::int64_t heads_to_rotate,
                 Matrix<const float> cosines, Matrix<const float> sines, float direction) {
  const auto half = static_cast<std::int64_t>(cosines.extent(1));
  const auto positions = static_cast<std::int64_t>(cosines.extent(0));
  require(sines.extent(0) == cosines.extent(0) && sines.extent(1) == cosines.extent(1) &&
              heads_to_rotate * 2 * half <= static_cast<std::int64_t>(qkv.extent(1)),
          label + ": the tables (T, D/2) do not fit the heads of qkv");
  for_each_row(
      space, label, static_cast<std::int64_t>(qkv.extent(0)),
      KOKKOS_LAMBDA(const RowTeam<Space>& team, std::int64_t n) {
        const float* const cosine = row_of(cosines, n % positions);
        const float* const sine = row_of(sines, n % positions);
        for (std::int64_t head = 0; head < heads_to_rotate; ++head) {
          T* const first = row_of(qkv, n) + head * 2 * half;
          T* const second = first + half;
          for_each_column(team, half, [&](std::int64_t i) {
            const float a = static_cast<float>(first[i]);
            const float b = static_cast<float>(second[i]);
            const float s = direction * sine[i];
            first[i] = static_cast<T>(a * cosine[i] - b * s);
            second[i] = static_cast<T>(b * cosine[i] + a * s);
          });
        }
      });
}

template <class Space, class T>
void rope_forward(const Space& space, Matrix<T> qkv, std::int64_t heads_to_rotate, std::int64_t head_dim,
                  Matrix<const float> cosines, Matrix<const float> sines) {
  require(head_dim == 2 * static_cast<std::int64_t>(cosines.extent(1)), "rope_forward: the tables are not (T, D/2)");
  rope_rotate(space, "kozero::rope_forward", qkv, heads_to_rotate, cosines, sines, 1.0F);
}

template <class Space, class T>
void rope_backward(const Space& space, Matrix<T> dqkv, std::int64_t heads_to_rotate, std::int64_t head_dim,
                   Matrix<const float> cosines, Matrix<const float> sines) {
  require(head_dim == 2 * static_cast<std::int64_t>(cosines.extent(1)), "rope_backward: the tables are not (T, D/2)");
  rope_rotate(space, "kozero::rope_backward", dqkv, heads_to_rotate, cosines, sines, -1.0F);
}

}  // namespace kozero::kernels
