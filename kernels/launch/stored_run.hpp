// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stored_run.hpp: numbers computed in float, one for each element of a run of memory, and stored in its type.
//   store_run(out, extent, value):        out[i] = T(value(i))                                  i in [0, extent)
//   store_runs(a, b, extent, values):     a[i] = T(values(i).first),  b[i] = T(values(i).second)
// For one host thread. value(i) may read and write element i of any array, its outputs' too, and no other that is
// written. Floats are stored as they come, in one SIMD loop. 16-bit results wait in a chunk of kChunk floats and are
// rounded together, with the machine's own instruction where it has one: it rounds as the type's constructor does, but
// in bf16 a NaN keeps its upper bits and what is below 2^-126 becomes zero, in every element alike.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#if defined(__AVX512BW__) && !defined(__CUDACC__)
#define KOZERO_ROUNDS_FLOAT16
#include <immintrin.h>
#if defined(__AVX512BF16__)
#define KOZERO_ROUNDS_BFLOAT16
#endif
#endif

#include <kozero/core/precision.hpp>

namespace kozero::kernels {

inline constexpr int kChunk = 128;

/// body(c) for c in [0, columns), as SIMD on one host thread: the columns must not depend on each other.
template <class Body>
KOKKOS_INLINE_FUNCTION void simd_loop(std::int64_t columns, const Body& body) {
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDA_ARCH__)
#pragma GCC ivdep
#endif
  for (std::int64_t c = 0; c < columns; ++c) body(c);
}

#if defined(KOZERO_ROUNDS_FLOAT16)
/// out[i] = rounded(in[i]), 16 at a time.
template <class T, class Rounded>
void round_lines(T* out, const float* in, int extent, const Rounded& rounded) {
  constexpr int kLoad = 16;
  for (int i = 0; i < extent; i += kLoad) {
    const auto there = static_cast<__mmask16>(extent - i < kLoad ? (1U << (extent - i)) - 1U : 0xFFFFU);
    const __m256i line = rounded(_mm512_maskz_loadu_ps(there, in + i));
    _mm512_mask_storeu_epi16(out + i, there, _mm512_castsi256_si512(line));
  }
}
#endif

/// out[i] = T(in[i]).
KOKKOS_INLINE_FUNCTION void round_chunk(Bfloat16* out, const float* in, int extent) {
#if defined(KOZERO_ROUNDS_BFLOAT16)
  round_lines(out, in, extent, [](__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); });
#else
  for (int i = 0; i < extent; ++i) out[i] = static_cast<Bfloat16>(in[i]);
#endif
}
KOKKOS_INLINE_FUNCTION void round_chunk(Float16* out, const float* in, int extent) {
#if defined(KOZERO_ROUNDS_FLOAT16)
  round_lines(out, in, extent,
              [](__m512 x) { return _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); });
#else
  for (int i = 0; i < extent; ++i) out[i] = static_cast<Float16>(in[i]);
#endif
}

template <class T, class Value>
KOKKOS_INLINE_FUNCTION void store_run(T* out, std::int64_t extent, const Value& value) {
  if constexpr (std::is_same_v<T, float>) {
    simd_loop(extent, [=](std::int64_t i) { out[i] = value(i); });
  } else {
    for (std::int64_t first = 0; first < extent; first += kChunk) {
      float chunk[kChunk];
      const auto here = static_cast<int>(first + kChunk < extent ? kChunk : extent - first);
      simd_loop(here, [&, value](std::int64_t i) { chunk[i] = value(first + i); });
      round_chunk(out + first, chunk, here);
    }
  }
}

/// What the runs of store_runs get.
struct TwoValues {
  float first, second;
};

template <class T, class Values>
KOKKOS_INLINE_FUNCTION void store_runs(T* a, T* b, std::int64_t extent, const Values& values) {
  if constexpr (std::is_same_v<T, float>) {
    simd_loop(extent, [=](std::int64_t i) {
      const TwoValues at = values(i);
      a[i] = at.first;
      b[i] = at.second;
    });
  } else {
    for (std::int64_t first = 0; first < extent; first += kChunk) {
      float chunk_a[kChunk], chunk_b[kChunk];
      const auto here = static_cast<int>(first + kChunk < extent ? kChunk : extent - first);
      simd_loop(here, [&, values](std::int64_t i) {
        const TwoValues at = values(first + i);
        chunk_a[i] = at.first;
        chunk_b[i] = at.second;
      });
      round_chunk(a + first, chunk_a, here);
      round_chunk(b + first, chunk_b, here);
    }
  }
}

}  // namespace kozero::kernels
