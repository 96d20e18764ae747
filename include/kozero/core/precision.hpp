// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// precision.hpp: the types in which a run stores weights and activations: float, Bfloat16, Float16.
//   f32          weights are their own master
//   bf16, fp16   weights and activations in 16 bits; master weights, moments, gradients and all sums in float
// The 16-bit types store and convert; they have no arithmetic, since kernels compute in float. Their conversions have
// no branch, so that loops over them become SIMD; a GPU uses its own instructions. The lists here instantiate templates
// once per type. A further type needs a line in each list, and support by the back ends of matrix products
// (kernels/matmul/matmul.hpp).
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#include <kozero/core/views.hpp>

namespace kozero {

/// The upper half of a float, for storage: 8 bits of exponent, 8 of significand (one of them implied).
///   Bfloat16(x) rounds to nearest, ties to even, |error| <= 2^-8 |x|       static_cast<float>(b) is exact
/// Every NaN becomes the same NaN, and an overflow becomes infinity.
class Bfloat16 {
 public:
  Bfloat16() = default;
  KOKKOS_INLINE_FUNCTION explicit Bfloat16(float value) {
    KOKKOS_IF_ON_HOST((bits_ = rounded(value);))
    KOKKOS_IF_ON_DEVICE((bits_ = Kokkos::bit_cast<std::uint16_t>(Kokkos::Experimental::cast_to_bhalf(value));))
  }
  KOKKOS_INLINE_FUNCTION explicit operator float() const {
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

  [[nodiscard]] KOKKOS_INLINE_FUNCTION std::uint16_t bits() const { return bits_; }

 private:
  KOKKOS_INLINE_FUNCTION static std::uint16_t rounded(float value) {
    constexpr std::uint32_t kNaN = 0x7FC00000U;
    const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = bits + 0x7FFFU + ((bits >> 16) & 1U);
    return static_cast<std::uint16_t>((value != value ? kNaN : nearest) >> 16);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(Bfloat16) == 2 && alignof(Bfloat16) == 2, "arrays of it are arrays of 16-bit words");

/// IEEE 754's binary16, for storage: 5 bits of exponent, 11 of significand (one of them implied).
///   Float16(x) rounds to nearest, ties to even, |error| <= 2^-11 |x| from 2^-14 on, <= 2^-25 below; from 65520 on it
///   is infinity       static_cast<float>(h) is exact
/// The results equal those of the processors' own conversions bit for bit, NaN included. The conversions create no
/// denormal float, which a processor may flush to zero: the least subnormal here is 2^-24.
class Float16 {
 public:
  Float16() = default;
  KOKKOS_INLINE_FUNCTION explicit Float16(float value) {
    KOKKOS_IF_ON_HOST((bits_ = rounded(value);))
    KOKKOS_IF_ON_DEVICE((bits_ = Kokkos::bit_cast<std::uint16_t>(Kokkos::Experimental::cast_to_half(value));))
  }
  KOKKOS_INLINE_FUNCTION explicit operator float() const {
    KOKKOS_IF_ON_HOST((return widened(bits_);))
    KOKKOS_IF_ON_DEVICE(
        (return Kokkos::Experimental::cast_from_half<float>(Kokkos::bit_cast<Kokkos::Experimental::half_t>(bits_));))
  }

  [[nodiscard]] KOKKOS_INLINE_FUNCTION std::uint16_t bits() const { return bits_; }

 private:
  static constexpr std::uint32_t kRebias = 112U << 23;  ///< between the exponents' biases, 127 and 15

  KOKKOS_INLINE_FUNCTION static std::uint16_t rounded(float value) {
    constexpr std::uint32_t kHalf = 0x3F000000U;  // as a float
    constexpr std::uint32_t kInfinity = 0x7C00U;
    const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    // A carry may round up to the next power of two, or to infinity.
    const std::uint32_t normal = (magnitude - kRebias + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    // Floats from 1/2 to 1 are multiples of 2^-24, like the subnormals here, so the sum rounds like a subnormal.
    const std::uint32_t subnormal = Kokkos::bit_cast<std::uint32_t>(Kokkos::bit_cast<float>(magnitude) + 0.5F) - kHalf;
    const std::uint32_t finite = magnitude < kRebias + (1U << 23) ? subnormal : normal;
    const std::uint32_t number = magnitude < 0x47800000U ? finite : kInfinity;  // 2^16
    const std::uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x1FFU);
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | (magnitude > 0x7F800000U ? nan : number));
  }

  KOKKOS_INLINE_FUNCTION static float widened(std::uint16_t bits) {
    constexpr std::uint32_t kLeastNormal = kRebias + (1U << 23);  // 2^-14 as a float
    const std::uint32_t shifted = (bits & 0x7FFFU) << 13;
    // A subnormal is the difference between 2^-14 and the number with the exponent of 2^-14 and the same fraction.
    const float beyond = Kokkos::bit_cast<float>(shifted + kLeastNormal) - Kokkos::bit_cast<float>(kLeastNormal);
    const std::uint32_t normal = shifted + (shifted < (31U << 23) ? kRebias : 2U * kRebias);
    const std::uint32_t magnitude = shifted < (1U << 23) ? Kokkos::bit_cast<std::uint32_t>(beyond) : normal;
    return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x8000U) << 16 | magnitude);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(Float16) == 2 && alignof(Float16) == 2, "arrays of it are arrays of 16-bit words");

}  // namespace kozero

/// X(T) for each 16-bit type, and for each stored type. Files use these lists to instantiate their templates.
#define KOZERO_FOR_16_BIT_TYPES(X) X(Bfloat16) X(Float16)
#define KOZERO_FOR_STORED_TYPES(X) X(float) KOZERO_FOR_16_BIT_TYPES(X)

namespace kozero {

enum class Precision { f32, bf16, fp16 };

/// How the frozen base of adapters is stored: as the other weights, or quantized (kernels/ops/quantize.hpp).
enum class BaseType { as_weights, int8, nf4 };

/// Whether weights of this type are rounded from a separate float master.
template <class Scalar>
inline constexpr bool has_master = !std::is_same_v<Scalar, float>;

/// Bytes of a parameter: the value that the network reads, and a separate master.
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

/// Calls call(Scalar()) with the stored type of `precision`.
template <class Call>
decltype(auto) with_stored_type(Precision precision, const Call& call) {
  if (precision == Precision::bf16) return call(Bfloat16());
  if (precision == Precision::fp16) return call(Float16());
  return call(float());
}

}  // namespace kozero
