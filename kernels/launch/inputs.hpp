// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inputs.hpp: the types of a kernel's read-only arguments: const Views, and the position of each row in its sequence.
//   RepeatedPositions   row n is position n mod T: whole sequences, one after the other, as in training
//   RowPositions        row n is position positions(n) of sequence sequences(n): new tokens of cached sequences
//   GivenPositions      row n is position positions(n): tokens of documents
// A kernel's storage type T is deduced from its output; an input is a View of const T, to which a View of T converts.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#include <kozero/core/views.hpp>

namespace kozero::kernels {

template <class T>
using VectorIn = Vector<const std::type_identity_t<T>>;
template <class T>
using MatrixIn = Matrix<const std::type_identity_t<T>>;

struct RepeatedPositions {
  std::int64_t count;  ///< T
  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t n) const { return n % count; }
};

struct RowPositions {
  Vector<const std::int32_t> sequences;  ///< (N)
  Vector<const std::int32_t> positions;  ///< (N)

  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t n) const { return positions(n); }
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(positions.extent(0)); }
};

struct GivenPositions {
  Vector<const std::int32_t> positions;  ///< (N)

  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t n) const { return positions(n); }
};

}  // namespace kozero::kernels
