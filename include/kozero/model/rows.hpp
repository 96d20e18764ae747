// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rows.hpp: parts and readings of row-major matrices, without a copy.
//   rows(a, first, count): rows [first, first + count)     flat(a): all elements as one vector
#pragma once
#include <kozero/core/views.hpp>

namespace kozero::model {

template <class T, class Memory>
Matrix<T, Memory> rows(const Matrix<T, Memory>& a, std::int64_t first, std::int64_t count) {
  return Matrix<T, Memory>(a.data() + first * static_cast<std::int64_t>(a.extent(1)), static_cast<std::size_t>(count),
                   a.extent(1));
}

template <class T, class Memory>
Vector<T, Memory> flat(const Matrix<T, Memory>& a) {
  return Vector<T, Memory>(a.data(), a.extent(0) * a.extent(1));
}

}  // namespace kozero::model
