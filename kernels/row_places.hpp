// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_places.hpp: which position of which sequence a row of activations is.
//   RepeatedPositions   row n is position n mod T: whole sequences, one behind the other, as in training
//   RowPlaces           row n is position positions(n) of sequence sequences(n): new tokens of cached sequences
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/core/views.hpp>

namespace kozero::kernels {

struct RepeatedPositions {
  std::int64_t count;  ///< T
  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t n) const { return n % count; }
};

struct RowPlaces {
  Vector<const std::int32_t> sequences;  ///< (N)
  Vector<const std::int32_t> positions;  ///< (N)

  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t n) const { return positions(n); }
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(positions.extent(0)); }
};

}  // namespace kozero::kernels
