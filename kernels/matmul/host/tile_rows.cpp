// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tile_rows.cpp: bias, addend, GELU and rounding of one row at a time, in two lines of 16 numbers.
// Compiled for AVX-512 (F, BW, BF16): call only on a processor that has it.
#include <immintrin.h>
#include <algorithm>

#include "kernels/matmul/host/tile_lines.hpp"
#include "kernels/matmul/host/tile_rows.hpp"

namespace kozero::kernels {
namespace {

constexpr int kLines = 2;

/// 32 numbers of a row.
struct Row {
  __m512 line[kLines];
};

/// Columns of a row that exist.
struct Columns {
  std::uint32_t mask;

  explicit Columns(std::int64_t count) : mask(lanes_below(count, kTileRows)) {}
  [[nodiscard]] __mmask16 line(int l) const { return static_cast<__mmask16>(mask >> (16 * l)); }
};

inline Row load(const float* from, Columns columns) {
  return {_mm512_maskz_loadu_ps(columns.line(0), from), _mm512_maskz_loadu_ps(columns.line(1), from + 16)};
}

inline Row load(const std::uint16_t* from, Columns columns) {
  const __m512i all = _mm512_maskz_loadu_epi16(columns.mask, from);
  const auto widened = [](__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  return {widened(_mm512_castsi512_si256(all)), widened(_mm512_extracti64x4_epi64(all, 1))};
}

inline Row load(const Float16Bits* from, Columns columns) {
  const __m512i all = _mm512_maskz_loadu_epi16(columns.mask, from);
  return {_mm512_cvtph_ps(_mm512_castsi512_si256(all)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1))};
}

inline void store(float* to, Columns columns, const Row& row) {
  for (int l = 0; l < kLines; ++l) _mm512_mask_storeu_ps(to + 16 * l, columns.line(l), row.line[l]);
}

template <class Storage>
__m512i rounded(const Row& row);

template <>
inline __m512i rounded<std::uint16_t>(const Row& row) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(row.line[1], row.line[0]));
}

template <>
inline __m512i rounded<Float16Bits>(const Row& row) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(row.line[0], kNearest));
  return _mm512_inserti64x4(low, _mm512_cvtps_ph(row.line[1], kNearest), 1);
}

template <class Storage>
void store(Storage* to, Columns columns, const Row& row) {
  _mm512_mask_storeu_epi16(to, columns.mask, rounded<Storage>(row));
}

/// Stores a whole row, bypassing the caches; `to` begins a cache line.
inline void stream(float* to, const Row& row) {
  for (int l = 0; l < kLines; ++l) _mm512_stream_ps(to + 16 * l, row.line[l]);
}

template <class Storage>
void stream(Storage* to, const Row& row) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded<Storage>(row));
}

// The constants of gelu.hpp, which this file cannot include, since gelu.hpp includes Kokkos.
constexpr float kSlope = 2.0F * 0.797884560802865356F;
constexpr float kCurve = 3.0F * 0.044715F * kSlope;
constexpr float kLinear = -1.44269504088896341F * kSlope;
constexpr float kCubic = 0.044715F * kLinear;

/// 1 / (1 + exp(-2u)) of x, by an estimate of 14 bits and one Newton step.
inline __m512 gelu_share(__m512 x, __m512 square) {
  const __m512 factor = _mm512_fmadd_ps(_mm512_set1_ps(kCubic), square, _mm512_set1_ps(kLinear));
  const __m512 exponent = _mm512_mul_ps(x, factor);
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 sum = _mm512_add_ps(one, power_of_two(0xFFFF, _mm512_min_ps(_mm512_set1_ps(126.0F), exponent)));
  const __m512 estimate = _mm512_rcp14_ps(sum);
  return _mm512_fmadd_ps(estimate, _mm512_fnmadd_ps(sum, estimate, one), estimate);
}

inline __m512 gelu(__m512 x) { return _mm512_mul_ps(x, gelu_share(x, _mm512_mul_ps(x, x))); }

inline __m512 gelu_slope(__m512 x) {
  const __m512 square = _mm512_mul_ps(x, x);
  const __m512 share = gelu_share(x, square);
  const __m512 slope = _mm512_fmadd_ps(_mm512_set1_ps(kCurve), square, _mm512_set1_ps(kSlope));
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(share, share, share), _mm512_mul_ps(x, slope), share);
}

}  // namespace

void finish_stores() { _mm_sfence(); }

template <class Out, class In>
void store_tile_rows(const TileRows<Out, In>& block, std::int64_t begin, std::int64_t end) {
  if (block.sums == nullptr) return;
  const Columns columns(block.columns);
  const Row bias = block.bias != nullptr ? load(block.bias, columns) : Row{_mm512_setzero_ps(), _mm512_setzero_ps()};
  const auto put = [&](Out* to, const Row& row) {
    if (block.non_temporal && columns.mask == ~std::uint32_t{0} && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
      stream(to, row);
    } else {
      store(to, columns, row);
    }
  };
  for (std::int64_t r = begin; r < std::min(end, block.rows); ++r) {
    const std::int64_t at = r * block.stride;
    Row row{_mm512_load_ps(block.sums + r * kTileRows), _mm512_load_ps(block.sums + r * kTileRows + 16)};
    const auto each = [&](const Row& other, auto combine) {
      for (int l = 0; l < kLines; ++l) row.line[l] = combine(row.line[l], other.line[l]);
    };
    const auto plus = [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); };
    if (block.bias != nullptr) each(bias, plus);
    if (block.addend != nullptr) each(load(block.addend + at, columns), plus);
    if (block.hidden != nullptr) {
      each(load(block.hidden + at, columns), [](__m512 a, __m512 x) { return _mm512_mul_ps(a, gelu_slope(x)); });
    }
    put(block.c + at, row);
    if (block.active != nullptr) put(block.active + at, {gelu(row.line[0]), gelu(row.line[1])});
  }
}

template void store_tile_rows<float, float>(const TileRows<float, float>&, std::int64_t, std::int64_t);
template void store_tile_rows<float, std::uint16_t>(const TileRows<float, std::uint16_t>&, std::int64_t, std::int64_t);
template void store_tile_rows<std::uint16_t, std::uint16_t>(const TileRows<std::uint16_t, std::uint16_t>&, std::int64_t,
                                                            std::int64_t);
template void store_tile_rows<float, Float16Bits>(const TileRows<float, Float16Bits>&, std::int64_t, std::int64_t);
template void store_tile_rows<Float16Bits, Float16Bits>(const TileRows<Float16Bits, Float16Bits>&, std::int64_t,
                                                        std::int64_t);

}  // namespace kozero::kernels
