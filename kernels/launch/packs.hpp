// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// packs.hpp: packs of neighboring elements, which a GPU's lane loads and stores at once, and unrolling of loops on
// GPUs.
//   fold_share<Added>(columns, lane, lanes, f, x, y)     this lane's share of  sum over c of f(x[c], y[c])
//   assign_share(out, columns, lane, lanes, f, x, y)     this lane's share of  out[c] = T(f(x[c], y[c]))
//   KOZERO_UNROLLED          a loop over a thread's own small array, which stays in registers: they have no addresses
//   KOZERO_UNROLLED_BY(n)    a loop that only reads: n reads are under way at once
// A pack has 16 bytes of the narrowest type among the arrays of a call, as floats. Lane l processes packs l, l + lanes,
// ..., of which it reads kInFlight before it uses the first, and one of the elements after the last whole pack. If all
// arrays are aligned to 16 bytes, packs are accessed with 16-byte instructions; the order of a sum does not depend on
// that. f gets floats, after a Column if it accepts one, and returns a float. The functions are for a GPU's thread;
// they run on hosts too, where tests compare them with plain loops. Host compilers need no unrolling.
#pragma once
#include <algorithm>
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#if defined(__CUDA_ARCH__)
#define KOZERO_PRAGMA(directive) _Pragma(#directive)
#define KOZERO_UNROLLED _Pragma("unroll")
#define KOZERO_UNROLLED_BY(n) KOZERO_PRAGMA(unroll n)
#else
#define KOZERO_UNROLLED
#define KOZERO_UNROLLED_BY(n)
#endif

namespace kozero::kernels {

inline constexpr int kAccessBytes = 16;  ///< of the widest load and store of a GPU's thread
inline constexpr int kInFlight = 4;      ///< packs that a lane reads at once

/// Elements of a pack of these types.
template <class... T>
inline constexpr int kPackOf = kAccessBytes / static_cast<int>(std::min({sizeof(T)...}));

/// All arrays are aligned to kAccessBytes.
template <class... T>
KOKKOS_INLINE_FUNCTION bool is_aligned(const T*... arrays) {
  return (reinterpret_cast<std::uintptr_t>(arrays) | ... | std::uintptr_t{0}) % kAccessBytes == 0;
}

/// The index of an element in its row, for functions that accept it.
struct Column {
  std::int64_t index;
};

template <int kCount>
struct Pack {
  float x[kCount];
};

/// A pack in its storage type.
template <class T, int kCount>
struct alignas(kCount > 1 ? kAccessBytes : alignof(T)) StoredPack {
  T x[kCount];
};

/// The elements from `from` on, which is aligned if kAligned.
template <int kCount, bool kAligned = true, class T>
KOKKOS_INLINE_FUNCTION StoredPack<T, kCount> stored_pack(const T* from) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const StoredPack<T, kCount>*>(from);
  } else {
    StoredPack<T, kCount> stored;
    KOZERO_UNROLLED
    for (int k = 0; k < kCount; ++k) stored.x[k] = from[k];
    return stored;
  }
}

/// The same as floats.
template <int kCount, bool kAligned = true, class T>
KOKKOS_INLINE_FUNCTION Pack<kCount> load_pack(const T* from) {
  const auto stored = stored_pack<kCount, kAligned>(from);
  Pack<kCount> pack;
  KOZERO_UNROLLED
  for (int k = 0; k < kCount; ++k) pack.x[k] = static_cast<float>(stored.x[k]);
  return pack;
}

/// Rounds the pack to T; `to` is aligned. Each pack is written with a single 16-byte store, an integer combined by
/// shifts, since nvcc may store a struct element by element.
template <int kCount, class T>
KOKKOS_INLINE_FUNCTION void store_pack(T* to, const Pack<kCount>& pack) {
  if constexpr (kCount == 1) {
    *to = static_cast<T>(pack.x[0]);
  } else {
    __extension__ typedef unsigned __int128 Access __attribute__((may_alias));
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
    constexpr int kOfAccess = kAccessBytes / static_cast<int>(sizeof(T));
    KOZERO_UNROLLED
    for (int first = 0; first < kCount; first += kOfAccess) {
      Access access = 0;
      KOZERO_UNROLLED
      for (int k = 0; k < kOfAccess; ++k) {
        const auto bits = Kokkos::bit_cast<Bits>(static_cast<T>(pack.x[first + k]));
        access |= static_cast<Access>(bits) << (8 * sizeof(T) * static_cast<unsigned>(k));
      }
      *reinterpret_cast<Access*>(to + first) = access;
    }
  }
}

/// to = from, both aligned.
template <int kCount, class T>
KOKKOS_INLINE_FUNCTION void copy_pack(T* to, const T* from) {
  *reinterpret_cast<StoredPack<T, kCount>*>(to) = *reinterpret_cast<const StoredPack<T, kCount>*>(from);
}

/// f for one element of each array.
template <class F, class... Float>
KOKKOS_INLINE_FUNCTION auto value_of(const F& f, std::int64_t column, Float... x) {
  if constexpr (std::is_invocable_v<const F&, Column, Float...>) {
    return f(Column{column}, x...);
  } else {
    return f(x...);
  }
}

/// f, element by element, of packs whose first element is `column`.
template <int kCount, class F, class... Packs>
KOKKOS_INLINE_FUNCTION Pack<kCount> map_packs(const F& f, std::int64_t column, const Packs&... packs) {
  Pack<kCount> result;
  KOZERO_UNROLLED
  for (int k = 0; k < kCount; ++k) result.x[k] = value_of(f, column + k, packs.x[k]...);
  return result;
}

/// a = T(f(...).first), b = T(f(...).second), element by element.
template <int kCount, class T, class F, class... Packs>
KOKKOS_INLINE_FUNCTION void assign_two(T* a, T* b, const F& f, const Pack<kCount>& x, const Packs&... more) {
  Pack<kCount> first, second;
  KOZERO_UNROLLED
  for (int k = 0; k < kCount; ++k) {
    const auto values = f(x.x[k], more.x[k]...);
    first.x[k] = values.first;
    second.x[k] = values.second;
  }
  store_pack(a, first);
  store_pack(b, second);
}

/// The reduction of a row: its sum, or its largest value, which ignores NaN.
struct Added {
  static constexpr float kOfNone = 0.0F;
  KOKKOS_INLINE_FUNCTION static float of(float a, float b) { return a + b; }
};
struct Largest {
  static constexpr float kOfNone = -Kokkos::Experimental::infinity_v<float>;
  KOKKOS_INLINE_FUNCTION static float of(float a, float b) { return Kokkos::fmax(a, b); }
};

/// The reduction of a pack, by halves.
template <class Fold, int kCount>
KOKKOS_INLINE_FUNCTION float folded(Pack<kCount> pack) {
  KOZERO_UNROLLED
  for (int half = kCount / 2; half > 0; half /= 2) {
    KOZERO_UNROLLED
    for (int k = 0; k < half; ++k) pack.x[k] = Fold::of(pack.x[k], pack.x[k + half]);
  }
  return pack.x[0];
}

/// The reduction of this lane's packs. After the last pack it reads the first again, since a branch would delay reads.
template <class Fold, bool kAligned, class F, class... In>
KOKKOS_INLINE_FUNCTION float fold_packs(std::int64_t packs, std::int64_t lane, std::int64_t lanes, const F& f,
                                        const In*... in) {
  constexpr int kCount = kPackOf<In...>;
  float result = Fold::kOfNone;
  for (std::int64_t first = lane; first < packs; first += kInFlight * lanes) {
    float of_pack[kInFlight];
    KOZERO_UNROLLED
    for (int j = 0; j < kInFlight; ++j) {
      const bool there = first + j * lanes < packs;
      const std::int64_t c = kCount * (there ? first + j * lanes : first);
      const float value = folded<Fold>(map_packs<kCount>(f, c, load_pack<kCount, kAligned>(in + c)...));
      of_pack[j] = there ? value : Fold::kOfNone;
    }
    KOZERO_UNROLLED
    for (int j = 0; j < kInFlight; ++j) result = Fold::of(result, of_pack[j]);
  }
  return result;
}

template <class Fold, class F, class... In>
KOKKOS_INLINE_FUNCTION float fold_share(std::int64_t columns, std::int64_t lane, std::int64_t lanes, const F& f,
                                        const In*... in) {
  constexpr int kCount = kPackOf<In...>;
  const std::int64_t packs = columns / kCount;
  float result = is_aligned(in...) ? fold_packs<Fold, true>(packs, lane, lanes, f, in...)
                                   : fold_packs<Fold, false>(packs, lane, lanes, f, in...);
  for (std::int64_t c = packs * kCount + lane; c < columns; c += lanes) {
    result = Fold::of(result, value_of(f, c, static_cast<float>(in[c])...));
  }
  return result;
}

/// assign_share for the whole packs of aligned arrays. `out` may be one of `in`.
template <int kAtOnce, class T, class F, class... In>
KOKKOS_INLINE_FUNCTION void assign_packs(T* out, std::int64_t packs, std::int64_t lane, std::int64_t lanes, const F& f,
                                         const In*... in) {
  constexpr int kCount = kPackOf<T, In...>;
  for (std::int64_t first = lane; first < packs; first += kAtOnce * lanes) {
    Pack<kCount> values[kAtOnce];
    KOZERO_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      const std::int64_t c = kCount * (first + j * lanes < packs ? first + j * lanes : first);
      values[j] = map_packs<kCount>(f, c, load_pack<kCount>(in + c)...);
    }
    KOZERO_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j * lanes < packs) store_pack(out + kCount * (first + j * lanes), values[j]);
    }
  }
}

template <int kAtOnce = kInFlight, class T, class F, class... In>
KOKKOS_INLINE_FUNCTION void assign_share(T* out, std::int64_t columns, std::int64_t lane, std::int64_t lanes,
                                         const F& f, const In*... in) {
  constexpr int kCount = kPackOf<T, In...>;
  const std::int64_t packs = is_aligned(out, in...) ? columns / kCount : 0;
  assign_packs<kAtOnce>(out, packs, lane, lanes, f, in...);
  for (std::int64_t c = packs * kCount + lane; c < columns; c += lanes) {
    out[c] = static_cast<T>(value_of(f, c, static_cast<float>(in[c])...));
  }
}

}  // namespace kozero::kernels
