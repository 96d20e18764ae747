// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// conversions.cpp: the instruction cvt, between integers and floats of all widths and rounding modes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "forms.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

/// bf16 and f16 in a register; the numbers are those of IEEE 754's binary16, and of a float's upper half.
struct Bfloat {
  std::uint16_t bits;
};
using Half = _Float16;

float value(float x) { return x; }
double value(double x) { return x; }
float value(Half x) { return static_cast<float>(x); }
float value(Bfloat x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

template <class D, class V>
D rounded(V x) {
  if constexpr (!std::is_same_v<D, Bfloat>) {
    return static_cast<D>(x);
  } else {
    if (x != x) return {0x7FFF};
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
  }
}

/// Rounding to the nearest, toward zero, down, up.
enum class Way { nearest, zero, down, up };
template <Way kWay, class T>
T whole(T x) {
  if constexpr (kWay == Way::nearest) return std::nearbyint(x);
  if constexpr (kWay == Way::zero) return std::trunc(x);
  if constexpr (kWay == Way::down) return std::floor(x);
  return std::ceil(x);
}

template <class D, class S>
void resize(Warp& w, const Op& op, Mask mask) {
  D* d = w.lanes<D>(op.d);
  S* a = w.lanes<S>(op.a);
  for_lanes(mask, [&](int i) { d[i] = static_cast<D>(a[i]); });
}
template <class D, class S>
void float_to_float(Warp& w, const Op& op, Mask mask) {
  D* d = w.lanes<D>(op.d);
  S* a = w.lanes<S>(op.a);
  for_lanes(mask, [&](int i) { d[i] = rounded<D>(value(a[i])); });
}
template <class D, class S>
void whole_to_float(Warp& w, const Op& op, Mask mask) {
  D* d = w.lanes<D>(op.d);
  S* a = w.lanes<S>(op.a);
  for_lanes(mask, [&](int i) { d[i] = static_cast<D>(a[i]); });
}
/// Numbers out of range become the nearest in range; NaN becomes 0.
template <class D, class S, Way kWay>
void float_to_whole(Warp& w, const Op& op, Mask mask) {
  D* d = w.lanes<D>(op.d);
  S* a = w.lanes<S>(op.a);
  constexpr auto kLow = std::numeric_limits<D>::min(), kHigh = std::numeric_limits<D>::max();
  for_lanes(mask, [&](int i) {
    const S x = whole<kWay>(a[i]);
    if (x != x)
      d[i] = 0;
    else
      d[i] = x <= static_cast<S>(kLow) ? kLow : x >= static_cast<S>(kHigh) ? kHigh : static_cast<D>(x);
  });
}
template <class T, Way kWay>
void to_whole(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a);
  for_lanes(mask, [&](int i) { d[i] = whole<kWay>(a[i]); });
}

template <class F>
Handler with_whole(std::string_view type, const F& f) {
  if (type == "u8") return f(std::uint8_t{});
  if (type == "s8") return f(std::int8_t{});
  if (type == "u16") return f(std::uint16_t{});
  if (type == "s16") return f(std::int16_t{});
  if (type == "u32") return f(std::uint32_t{});
  if (type == "s32") return f(std::int32_t{});
  if (type == "u64") return f(std::uint64_t{});
  if (type == "s64") return f(std::int64_t{});
  return nullptr;
}
template <class F>
Handler with_float(std::string_view type, const F& f) {
  if (type == "f32") return f(float{});
  if (type == "f64") return f(double{});
  if (type == "f16") return f(Half{});
  if (type == "bf16") return f(Bfloat{});
  return nullptr;
}

bool is_float(std::string_view type) { return type.starts_with('f') || type.starts_with("bf"); }
std::uint8_t bytes(std::string_view type) {
  return type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
}

template <class T>
Handler rounding_to_whole(const Words& words) {
  if (words.has("rni")) return to_whole<T, Way::nearest>;
  if (words.has("rzi")) return to_whole<T, Way::zero>;
  if (words.has("rmi")) return to_whole<T, Way::down>;
  if (words.has("rpi")) return to_whole<T, Way::up>;
  return nullptr;
}

template <class D, class S>
Handler float_to_whole_by(const Words& words) {
  if (words.has("rni")) return float_to_whole<D, S, Way::nearest>;
  if (words.has("rzi")) return float_to_whole<D, S, Way::zero>;
  if (words.has("rmi")) return float_to_whole<D, S, Way::down>;
  if (words.has("rpi")) return float_to_whole<D, S, Way::up>;
  return nullptr;
}

/// Two floats, rounded, the first in the upper half.
template <class H>
void to_pair(Warp& w, const Op& op, Mask mask) {
  auto* d = w.lanes<std::uint32_t>(op.d);
  float *a = w.lanes<float>(op.a), *b = w.lanes<float>(op.b);
  for_lanes(mask, [&](int i) {
    d[i] = static_cast<std::uint32_t>(std::bit_cast<std::uint16_t>(rounded<H>(a[i]))) << 16 |
           std::bit_cast<std::uint16_t>(rounded<H>(b[i]));
  });
}

Handler conversion(const Words& words, std::string_view to, std::string_view from) {
  if (!is_float(to) && !is_float(from)) {
    return with_whole(to, [&](auto d) {
      return with_whole(from, [&](auto s) -> Handler { return resize<decltype(d), decltype(s)>; });
    });
  }
  if (is_float(to) && is_float(from)) {
    if (to == from)
      return to == "f32" ? rounding_to_whole<float>(words) : to == "f64" ? rounding_to_whole<double>(words) : nullptr;
    return with_float(to, [&](auto d) {
      return with_float(from, [&](auto s) -> Handler { return float_to_float<decltype(d), decltype(s)>; });
    });
  }
  if (is_float(to)) {
    return with_whole(from, [&](auto s) -> Handler {
      return to == "f32"   ? whole_to_float<float, decltype(s)>
             : to == "f64" ? whole_to_float<double, decltype(s)>
                           : nullptr;
    });
  }
  return with_whole(to, [&](auto d) -> Handler {
    return from == "f32"   ? float_to_whole_by<decltype(d), float>(words)
           : from == "f64" ? float_to_whole_by<decltype(d), double>(words)
                           : nullptr;
  });
}

}  // namespace

Form conversion_form(const Words& words) {
  if (words.base() != "cvt" || words.words.size() < 3) return {};
  for (const std::string_view word : {"sat", "relu", "ftz", "rz", "rm", "rp"}) {
    if (words.has(word)) return {};
  }
  const std::string_view to = words.words[words.words.size() - 2], from = words.type();
  if (to == "bf16x2" && from == "f32") return form(to_pair<Bfloat>, 4, 4, 4);
  if (to == "f16x2" && from == "f32") return form(to_pair<Half>, 4, 4, 4);
  return form(conversion(words, to, from), bytes(to), bytes(from));
}

}  // namespace kozero::gpu_emulator
