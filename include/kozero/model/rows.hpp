// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// rows.hpp: parts and readings of row-major matrices, without a copy.
//   rows(a, first, count): rows [first, first + count)     flat(a): all elements as one vector     read(a): the same, const
#pragma once
#include <kozero/core/views.hpp>

namespace kozero::model {

template <class T>
Matrix<T> rows(const Matrix<T>& a, std::int64_t first, std::int64_t count) {
  return Matrix<T>(a.data() + first * static_cast<std::int64_t>(a.extent(1)), static_cast<std::size_t>(count),
                   a.extent(1));
}

template <class T>
Vector<T> flat(const Matrix<T>& a) {
  return Vector<T>(a.data(), a.extent(0) * a.extent(1));
}

template <class T>
Matrix<const T> read(const Matrix<T>& a) {
  return a;
}

template <class T>
Vector<const T> read(const Vector<T>& a) {
  return a;
}

}  // namespace kozero::model
