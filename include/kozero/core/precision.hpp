// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// precision.hpp: in which type a run stores weights and activations.
//   f32          weights are their own master
//   bf16, fp16   weights and activations in 16 bits; master weights, moments, gradients and all sums in float
// A further type is a line in each of the lists here, and what back ends do with it (kernels/matmul.hpp).
#pragma once
#include <cstdint>
#include <type_traits>

#include <kozero/core/bfloat16.hpp>
#include <kozero/core/float16.hpp>

/// X(T) for each type of 16 bits, and for all types: what a file instantiates its templates for.
#define KOZERO_FOR_16_BIT_TYPES(X) X(Bfloat16) X(Float16)
#define KOZERO_FOR_STORED_TYPES(X) X(float) KOZERO_FOR_16_BIT_TYPES(X)

namespace kozero {

enum class Precision { f32, bf16, fp16 };

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

/// "f32", "bf16", "fp16".
constexpr const char* name_of(Precision precision) {
  constexpr const char* kNames[] = {"f32", "bf16", "fp16"};
  return kNames[static_cast<int>(precision)];
}

/// call(Scalar()), the type being that of the precision.
template <class Call>
decltype(auto) with_stored_type(Precision precision, const Call& call) {
  if (precision == Precision::bf16) return call(Bfloat16());
  if (precision == Precision::fp16) return call(Float16());
  return call(float());
}

}  // namespace kozero
