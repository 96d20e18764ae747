// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stored_vector.hpp: weights as a network reads them, for code that handles every precision alike.
// Of 16 bits it is what is rounded from the master; in f32 it is the master itself.
#pragma once
#include <variant>

#include <kozero/core/precision.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

using StoredVector = std::variant<Vector<float>, Vector<Bfloat16>, Vector<Float16>>;

inline StoredVector slice(const StoredVector& all, std::int64_t first, std::int64_t extent) {
  return std::visit([=](const auto& values) { return StoredVector(slice(values, first, extent)); }, all);
}

}  // namespace kozero
