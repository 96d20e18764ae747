// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// row_arrays.hpp: where rows lie that are added up together: those of matrices, or parts of them, as heads are.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>

#include <kozero/core/views.hpp>
#include <kozero/kernels/packs.hpp>

namespace kozero::kernels {

/// Row n begins at n * stride.
template <class T>
struct WholeRows {
  using Stored = T;
  const T* data;
  std::int64_t stride;

  [[nodiscard]] KOKKOS_FUNCTION const T* at(std::int64_t n) const { return data + n * stride; }
  /// All begin on borders.
  [[nodiscard]] KOKKOS_FUNCTION bool packed() const { return on_borders(data) && stride % kPackOf<T> == 0; }
};

/// Rows that lie one behind the other, `parts` of them in each longer one: row n at (n / parts) * stride + (n % parts)
/// * extent. Fewer than 2^32 of them.
template <class T>
struct PartsOfRows {
  using Stored = T;
  const T* data;
  std::int64_t stride;
  std::int64_t parts;
  std::int64_t extent;

  [[nodiscard]] KOKKOS_FUNCTION const T* at(std::int64_t n) const {
    return data + row(n) * stride + (n - row(n) * parts) * extent;
  }
  /// The longer row of row n; a GPU divides 32 bits in a fourth of the time.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t row(std::int64_t n) const {
    return static_cast<std::uint32_t>(n) / static_cast<std::uint32_t>(parts);
  }
  [[nodiscard]] KOKKOS_FUNCTION bool packed() const {
    return on_borders(data) && stride % kPackOf<T> == 0 && extent % kPackOf<T> == 0;
  }
};

/// `count` rows of each of some arrays of one type.
template <class Array, int kArrays>
struct Rows {
  Kokkos::Array<Array, kArrays> arrays;
  std::int64_t count;
};

template <class T, class... More>
auto rows_of(const Matrix<const T>& first, const More&... more) {
  const auto columns = static_cast<std::int64_t>(first.extent(1));
  using Array = WholeRows<T>;
  return Rows<Array, 1 + sizeof...(More)>{{Array{first.data(), columns}, Array{more.data(), columns}...},
                                          static_cast<std::int64_t>(first.extent(0))};
}

}  // namespace kozero::kernels
