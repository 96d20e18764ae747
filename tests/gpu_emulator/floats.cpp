// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// floats.cpp: arithmetic of float and double, and the approximate functions. With a seed, approximate results differ
// from the rounded result by up to the error that the PTX ISA allows; equal arguments give equal results.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "forms.hpp"
#include "report.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

/// Numbers below the smallest normal number become a zero with their sign.
inline float flushed(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x; }

template <bool kFlush, class T>
T input(T x) {
  if constexpr (kFlush && sizeof(T) == 4) return flushed(x);
  return x;
}

template <class T, class F, bool kFlush>
void unary(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a);
  for_lanes(mask, [&](int i) { d[i] = input<kFlush>(static_cast<T>(F{}(input<kFlush>(a[i])))); });
}
template <class T, class F, bool kFlush>
void binary(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  for_lanes(mask, [&](int i) { d[i] = input<kFlush>(static_cast<T>(F{}(input<kFlush>(a[i]), input<kFlush>(b[i])))); });
}
template <class T, bool kFlush>
void fused(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b), *c = w.lanes<T>(op.c);
  for_lanes(mask, [&](int i) {
    d[i] = input<kFlush>(std::fma(input<kFlush>(a[i]), input<kFlush>(b[i]), input<kFlush>(c[i])));
  });
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b || b != b ? a : b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b || b != b ? a : b;
  }
};
struct CopySign {
  template <class T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return -a;
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Root {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T{1} / a;
  }
};

/// A float near `exact`, fewer than `ulps` steps from the nearest; chosen by the seed and the argument.
float near(double exact, std::uint32_t ulps, float argument) {
  const auto nearest = static_cast<float>(exact);
  const std::uint64_t seed = options().exact ? 0 : options().seed;
  if (seed == 0 || !std::isfinite(nearest) || nearest == 0.0F) return nearest;
  const std::uint64_t drawn = mixed(seed ^ std::bit_cast<std::uint32_t>(argument));
  if (ulps == 1) {  // the neighbor on the exact result's other side
    if ((drawn & 1U) == 0 || static_cast<double>(nearest) == exact) return nearest;
    return std::nextafter(nearest, exact > static_cast<double>(nearest) ? HUGE_VALF : -HUGE_VALF);
  }
  const int steps = static_cast<int>(drawn % (2 * ulps - 1)) - static_cast<int>(ulps - 1);
  float moved = nearest;
  for (int i = 0; i < std::abs(steps); ++i) moved = std::nextafter(moved, steps > 0 ? HUGE_VALF : -HUGE_VALF);
  return moved;
}

/// A float whose absolute error is below `bound`.
float within(double exact, double bound, float argument) {
  const std::uint64_t seed = options().exact ? 0 : options().seed;
  if (seed == 0 || !std::isfinite(exact)) return static_cast<float>(exact);
  const double drawn = static_cast<double>(mixed(seed ^ std::bit_cast<std::uint32_t>(argument)) >> 11) * 0x1p-53;
  return static_cast<float>(exact + (drawn - 0.5) * bound);
}

// Bounds: PTX ISA 9.0, the tables of each instruction.
struct PowerOfTwo {
  float operator()(float a) const { return a == 0.0F ? 1.0F : near(std::exp2(static_cast<double>(a)), 2, a); }
};
struct Logarithm {
  float operator()(float a) const { return within(std::log2(static_cast<double>(a)), 0x1p-22, a); }
};
struct NearReciprocal {
  float operator()(float a) const { return near(1.0 / static_cast<double>(a), 1, a); }
};
struct NearRoot {
  float operator()(float a) const { return near(std::sqrt(static_cast<double>(a)), 1, a); }
};
struct ReciprocalRoot {
  float operator()(float a) const { return near(1.0 / std::sqrt(static_cast<double>(a)), 2, a); }
};
struct Sine {
  float operator()(float a) const { return within(std::sin(static_cast<double>(a)), 0x1p-21, a); }
};
struct Cosine {
  float operator()(float a) const { return within(std::cos(static_cast<double>(a)), 0x1p-21, a); }
};
struct HyperbolicTangent {
  float operator()(float a) const {
    const double exact = std::tanh(static_cast<double>(a));
    return within(exact, 0x1p-11 * std::fabs(exact), a);
  }
};
struct NearQuotient {
  float operator()(float a, float b) const { return near(static_cast<double>(a) / static_cast<double>(b), 2, a); }
};
/// The upper 32 bits of a reciprocal, from those of the argument.
struct RoughReciprocal {
  double operator()(double a) const {
    constexpr std::uint64_t kUpper = ~std::uint64_t{0} << 32;
    const double rough = std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & kUpper);
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(1.0 / rough) & kUpper);
  }
};

template <class F>
Handler unary_of(bool real64, bool flush) {
  if (real64) return unary<double, F, false>;
  return flush ? unary<float, F, true> : unary<float, F, false>;
}
template <class F>
Handler binary_of(bool real64, bool flush) {
  if (real64) return binary<double, F, false>;
  return flush ? binary<float, F, true> : binary<float, F, false>;
}
template <class F>
Handler float_of(bool flush) {
  return flush ? unary<float, F, true> : unary<float, F, false>;
}

Handler approximate(std::string_view base, bool flush) {
  if (base == "ex2") return float_of<PowerOfTwo>(flush);
  if (base == "lg2") return float_of<Logarithm>(flush);
  if (base == "rcp") return float_of<NearReciprocal>(flush);
  if (base == "sqrt") return float_of<NearRoot>(flush);
  if (base == "rsqrt") return float_of<ReciprocalRoot>(flush);
  if (base == "sin") return float_of<Sine>(flush);
  if (base == "cos") return float_of<Cosine>(flush);
  if (base == "tanh") return float_of<HyperbolicTangent>(flush);
  if (base == "div") return flush ? binary<float, NearQuotient, true> : binary<float, NearQuotient, false>;
  return nullptr;
}

}  // namespace

Form float_form(const Words& words) {
  const std::string_view base = words.base(), type = words.type();
  if (type != "f32" && type != "f64") return {};
  // Rounding to nearest is the default. The other three modes and saturation are not implemented.
  for (const std::string_view word : {"rz", "rm", "rp", "sat", "NaN", "xorsign"}) {
    if (words.has(word)) return {};
  }
  const bool real64 = type == "f64", flush = words.has("ftz");
  const std::uint8_t n = real64 ? 8 : 4;
  if (words.has("approx") || words.has("full")) {
    if (real64) return base == "rcp" ? form(unary<double, RoughReciprocal, false>, 8, 8) : Form{};
    return form(approximate(base, flush), n, n, n);
  }
  if (base == "add") return form(binary_of<Add>(real64, flush), n, n, n);
  if (base == "sub") return form(binary_of<Subtract>(real64, flush), n, n, n);
  if (base == "mul") return form(binary_of<Multiply>(real64, flush), n, n, n);
  if (base == "div") return form(binary_of<Divide>(real64, flush), n, n, n);
  if (base == "min") return form(binary_of<Minimum>(real64, flush), n, n, n);
  if (base == "max") return form(binary_of<Maximum>(real64, flush), n, n, n);
  if (base == "copysign") return form(binary_of<CopySign>(real64, flush), n, n, n);
  if (base == "fma" || base == "mad")
    return form(real64 ? fused<double, false> : flush ? fused<float, true> : fused<float, false>, n, n, n, n);
  if (base == "neg") return form(unary_of<Negate>(real64, flush), n, n);
  if (base == "abs") return form(unary_of<Absolute>(real64, flush), n, n);
  if (base == "sqrt") return form(unary_of<Root>(real64, flush), n, n);
  if (base == "rcp") return form(unary_of<Reciprocal>(real64, flush), n, n);
  return {};
}

}  // namespace kozero::gpu_emulator
