// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// precision.hpp: in which type a run stores weights and activations.
//   f32    weights are their own master
//   bf16   weights and activations in bf16; master weights, moments, gradients and all sums in float
#pragma once
#include <cstdint>
#include <type_traits>

#include <kozero/core/bfloat16.hpp>

namespace kozero {

enum class Precision { f32, bf16 };

/// Whether weights of this type have a float master beside them, from which they are rounded.
template <class Scalar>
inline constexpr bool has_master = !std::is_same_v<Scalar, float>;

/// Bytes of a parameter: what the network reads, and its master beside it.
struct ParameterBytes {
  std::int64_t stored;
  std::int64_t master;
};
constexpr ParameterBytes parameter_bytes(Precision precision) {
  return precision == Precision::f32 ? ParameterBytes{4, 0} : ParameterBytes{2, 4};
}

constexpr const char* name_of(Precision precision) { return precision == Precision::f32 ? "f32" : "bf16"; }

}  // namespace kozero
