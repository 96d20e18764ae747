// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// integers.cpp: the arithmetic and bit instructions of integers.
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "forms.hpp"
#include "warp.hpp"

namespace kozero::gpu_emulator {
namespace {

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>>>;

template <class T, class F>
void unary(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a);
  for_lanes(mask, [&](int i) { d[i] = static_cast<T>(F{}(a[i])); });
}

template <class T, class F, class B = T>
void binary(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a);
  B* b = w.lanes<B>(op.b);
  for_lanes(mask, [&](int i) { d[i] = static_cast<T>(F{}(a[i], b[i])); });
}

template <class T, class F>
void ternary(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b), *c = w.lanes<T>(op.c);
  for_lanes(mask, [&](int i) { d[i] = static_cast<T>(F{}(a[i], b[i], c[i])); });
}

// Sums and products wrap, so they are computed without a sign.
template <class T>
std::make_unsigned_t<T> bits(T x) {
  return static_cast<std::make_unsigned_t<T>>(x);
}

struct Add {
  template <class T>
  auto operator()(T a, T b) const {
    return bits(a) + bits(b);
  }
};
struct Subtract {
  template <class T>
  auto operator()(T a, T b) const {
    return bits(a) - bits(b);
  }
};
struct MultiplyLow {
  template <class T>
  auto operator()(T a, T b) const {
    return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
  }
};
struct MultiplyHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>(a) * Wide<T>(b) >> (8 * sizeof(T)));
  }
};
struct MultiplyAddLow {
  template <class T>
  auto operator()(T a, T b, T c) const {
    return MultiplyLow{}(a, b) + static_cast<std::uint64_t>(c);
  }
};
struct MultiplyAddHigh {
  template <class T>
  auto operator()(T a, T b, T c) const {
    return bits(MultiplyHigh{}(a, b)) + bits(c);
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Negate {
  template <class T>
  auto operator()(T a) const {
    return 0 - bits(a);
  }
};
struct Absolute {
  template <class T>
  auto operator()(T a) const {
    return a < 0 ? 0 - bits(a) : bits(a);
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct Copy {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
// On a GPU, a division by zero gives all bits set, and the lowest number divided by -1 gives itself.
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - bits(a));
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct ShiftLeft {
  template <class T>
  T operator()(T a, std::uint32_t n) const {
    return n < 8 * sizeof(T) ? static_cast<T>(bits(a) << n) : T{0};
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, std::uint32_t n) const {
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    return static_cast<T>(std::is_signed_v<T> ? a >> std::min(n, kBits - 1) : n < kBits ? a >> n : 0);
  }
};

struct Reverse {
  template <class T>
  T operator()(T a) const {
    T all = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i) all = static_cast<T>(all | (a >> i & 1) << (8 * sizeof(T) - 1 - i));
    return all;
  }
};

template <class T, class F>
void counted(Warp& w, const Op& op, Mask mask) {
  auto* d = w.lanes<std::uint32_t>(op.d);
  T* a = w.lanes<T>(op.a);
  for_lanes(mask, [&](int i) { d[i] = F{}(a[i]); });
}
struct LeadingZeros {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct Ones {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
/// The position of the highest bit that differs from the sign; shiftamt: the shift that moves it to the top.
template <bool kShift>
struct FindHighest {
  template <class T>
  std::uint32_t operator()(T a) const {
    auto x = bits(a);
    if (std::is_signed_v<T> && a < 0) x = static_cast<decltype(x)>(~x);
    const auto zeros = static_cast<std::uint32_t>(std::countl_zero(x));
    if (x == 0) return ~0U;
    return kShift ? zeros : 8 * sizeof(T) - 1 - zeros;
  }
};

template <class T>
void multiply_wide(Warp& w, const Op& op, Mask mask) {
  auto* d = w.lanes<Wide<T>>(op.d);
  T *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  for_lanes(mask, [&](int i) { d[i] = Wide<T>(a[i]) * Wide<T>(b[i]); });
}
template <class T>
void multiply_add_wide(Warp& w, const Op& op, Mask mask) {
  using W = std::make_unsigned_t<Wide<T>>;
  auto *d = w.lanes<W>(op.d), *c = w.lanes<W>(op.c);
  T *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  for_lanes(mask, [&](int i) { d[i] = W(Wide<T>(a[i]) * Wide<T>(b[i])) + c[i]; });
}

/// Sums with the carry of the lane: kIn reads it, kOut sets it.
template <class T, bool kSubtract, bool kIn, bool kOut>
void with_carry(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const unsigned __int128 in = kIn ? w.carry >> i & 1U : 0U;
    const unsigned __int128 x = a[i], y = b[i];
    const unsigned __int128 result = kSubtract ? x - y - in : x + y + in;
    d[i] = static_cast<T>(result);
    if (kOut) assign(w.carry, (result >> (8 * sizeof(T)) & 1) != 0 ? kAllLanes : 0, Mask{1} << i);
  }
}
template <class T, bool kHigh, bool kIn, bool kOut>
void multiply_with_carry(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b), *c = w.lanes<T>(op.c);
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const T product = kHigh ? MultiplyHigh{}(a[i], b[i]) : static_cast<T>(MultiplyLow{}(a[i], b[i]));
    const unsigned __int128 result = static_cast<unsigned __int128>(product) + c[i] + (kIn ? w.carry >> i & 1U : 0U);
    d[i] = static_cast<T>(result);
    if (kOut) assign(w.carry, (result >> (8 * sizeof(T)) & 1) != 0 ? kAllLanes : 0, Mask{1} << i);
  }
}

template <class T>
void insert_bits(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a), *b = w.lanes<T>(op.b);
  auto *from = w.lanes<std::uint32_t>(op.c), *extent = w.lanes<std::uint32_t>(op.each[0]);
  for_lanes(mask, [&](int i) {
    const std::uint32_t begin = from[i] & 255U, n = extent[i] & 255U;
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    const T ones = n >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << n) - 1);
    const T field = begin >= kBits ? T{0} : static_cast<T>(ones << begin);
    d[i] = static_cast<T>((b[i] & ~field) | (begin >= kBits ? T{0} : static_cast<T>(a[i] << begin) & field));
  });
}
template <class T>
void extract_bits(Warp& w, const Op& op, Mask mask) {
  T *d = w.lanes<T>(op.d), *a = w.lanes<T>(op.a);
  auto *from = w.lanes<std::uint32_t>(op.b), *extent = w.lanes<std::uint32_t>(op.c);
  for_lanes(mask, [&](int i) {
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    const std::uint32_t begin = from[i] & 255U, n = extent[i] & 255U;
    const T shifted = ShiftRight{}(a[i], begin);
    if (n == 0 || n >= kBits)
      d[i] = n == 0 ? T{0} : shifted;
    else
      d[i] = static_cast<T>(ShiftRight{}(ShiftLeft{}(shifted, kBits - n), kBits - n));
  });
}

/// Bytes of {b, a} chosen by the four nibbles of c; the top bit of a nibble repeats the byte's sign.
void permute_bytes(Warp& w, const Op& op, Mask mask) {
  using U = std::uint32_t;
  U *d = w.lanes<U>(op.d), *a = w.lanes<U>(op.a), *b = w.lanes<U>(op.b), *c = w.lanes<U>(op.c);
  for_lanes(mask, [&](int i) {
    const std::uint64_t both = static_cast<std::uint64_t>(b[i]) << 32 | a[i];
    U all = 0;
    for (int k = 0; k < 4; ++k) {
      const U choice = c[i] >> (4 * k) & 15U;
      U byte = static_cast<U>(both >> (8 * (choice & 7U))) & 255U;
      if ((choice & 8U) != 0) byte = (byte & 128U) != 0 ? 255U : 0U;
      all |= byte << (8 * k);
    }
    d[i] = all;
  });
}

/// Calls `f` with a value of the PTX type of this name; nullptr if it is not an integer type.
template <class F>
Handler with_type(std::string_view type, const F& f) {
  if (type == "u16" || type == "b16") return f(std::uint16_t{});
  if (type == "s16") return f(std::int16_t{});
  if (type == "u32" || type == "b32") return f(std::uint32_t{});
  if (type == "s32") return f(std::int32_t{});
  if (type == "u64" || type == "b64") return f(std::uint64_t{});
  if (type == "s64") return f(std::int64_t{});
  return nullptr;
}

template <class F>
Handler binary_of(std::string_view type) {
  return with_type(type, [](auto t) -> Handler { return binary<decltype(t), F>; });
}
template <class F>
Handler unary_of(std::string_view type) {
  return with_type(type, [](auto t) -> Handler { return unary<decltype(t), F>; });
}
template <class F>
Handler shift_of(std::string_view type) {
  return with_type(type, [](auto t) -> Handler { return binary<decltype(t), F, std::uint32_t>; });
}

Handler carrying(const Words& words) {
  const std::string_view base = words.base();
  const bool out = words.has("cc"), in = base.ends_with("c"), wide = words.type().ends_with("64");
  const auto choose = [&]<class T>(T) -> Handler {
    if (base.starts_with("mad")) {
      if (words.has("hi"))
        return in ? out ? multiply_with_carry<T, true, true, true> : multiply_with_carry<T, true, true, false>
                  : multiply_with_carry<T, true, false, true>;
      return in ? out ? multiply_with_carry<T, false, true, true> : multiply_with_carry<T, false, true, false>
                : multiply_with_carry<T, false, false, true>;
    }
    if (base.starts_with("sub"))
      return in ? out ? with_carry<T, true, true, true> : with_carry<T, true, true, false>
                : with_carry<T, true, false, true>;
    return in ? out ? with_carry<T, false, true, true> : with_carry<T, false, true, false>
              : with_carry<T, false, false, true>;
  };
  return wide ? choose(std::uint64_t{}) : choose(std::uint32_t{});
}

Form product_form(const Words& words, std::uint8_t size) {
  const std::string_view type = words.type();
  const bool adds = words.base() == "mad";
  if (words.has("wide")) {
    const auto twice = static_cast<std::uint8_t>(2 * size);
    const Handler run = with_type(type, [&](auto t) -> Handler {
      using T = decltype(t);
      if constexpr (sizeof(T) == 8)
        return nullptr;
      else
        return adds ? multiply_add_wide<T> : multiply_wide<T>;
    });
    return form(run, twice, size, size, twice);
  }
  const bool high = words.has("hi");
  const Handler run = with_type(type, [&](auto t) -> Handler {
    using T = decltype(t);
    if (adds) return high ? ternary<T, MultiplyAddHigh> : ternary<T, MultiplyAddLow>;
    return high ? binary<T, MultiplyHigh> : binary<T, MultiplyLow>;
  });
  return form(run, size, size, size, size);
}

template <class F>
Handler counting(std::string_view type) {
  if (type.ends_with("64")) return counted<std::uint64_t, F>;
  return counted<std::uint32_t, F>;
}

Handler highest(const Words& words) {
  return with_type(words.type(), [&](auto t) -> Handler {
    using T = decltype(t);
    return words.has("shiftamt") ? counted<T, FindHighest<true>> : counted<T, FindHighest<false>>;
  });
}

}  // namespace

Form integer_form(const Words& words) {
  const std::string_view base = words.base(), type = words.type();
  const bool real = type.starts_with("f") || type.starts_with("bf");
  std::uint8_t n = type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 0;
  if (base == "mov")
    return n == 0 ? Form{}
                  : form(n == 8   ? unary<std::uint64_t, Copy>
                         : n == 4 ? unary<std::uint32_t, Copy>
                                  : unary<std::uint16_t, Copy>,
                         n, n);
  if (real || n == 0) return {};
  if (words.has("cc") || base == "addc" || base == "subc" || base == "madc") return form(carrying(words), n, n, n, n);
  if (base == "add") return form(binary_of<Add>(type), n, n, n);
  if (base == "sub") return form(binary_of<Subtract>(type), n, n, n);
  if (base == "mul" || base == "mad") return product_form(words, n);
  if (base == "div") return form(binary_of<Divide>(type), n, n, n);
  if (base == "rem") return form(binary_of<Remainder>(type), n, n, n);
  if (base == "min") return form(binary_of<Minimum>(type), n, n, n);
  if (base == "max") return form(binary_of<Maximum>(type), n, n, n);
  if (base == "neg") return form(unary_of<Negate>(type), n, n);
  if (base == "abs") return form(unary_of<Absolute>(type), n, n);
  if (base == "and") return form(binary_of<And>(type), n, n, n);
  if (base == "or") return form(binary_of<Or>(type), n, n, n);
  if (base == "xor") return form(binary_of<Xor>(type), n, n, n);
  if (base == "not") return form(unary_of<Not>(type), n, n);
  if (base == "shl") return form(shift_of<ShiftLeft>(type), n, n, 4);
  if (base == "shr")
    return form(type.starts_with('s') ? shift_of<ShiftRight>(type)
                                      : shift_of<ShiftRight>(n == 8   ? "u64"
                                                             : n == 4 ? "u32"
                                                                      : "u16"),
                n, n, 4);
  if (base == "clz") return form(counting<LeadingZeros>(type), 4, n);
  if (base == "popc") return form(counting<Ones>(type), 4, n);
  if (base == "bfind") return form(highest(words), 4, n);
  if (base == "brev") return form(n == 8 ? unary<std::uint64_t, Reverse> : unary<std::uint32_t, Reverse>, n, n);
  if (base == "bfi") return form(n == 8 ? insert_bits<std::uint64_t> : insert_bits<std::uint32_t>, n, n, n, 4, 4);
  if (base == "bfe")
    return form(with_type(type, [](auto t) -> Handler { return extract_bits<decltype(t)>; }), n, n, 4, 4);
  if (base == "prmt" && words.words.size() == 2) return form(permute_bytes, 4, 4, 4, 4);
  return {};
}

}  // namespace kozero::gpu_emulator
