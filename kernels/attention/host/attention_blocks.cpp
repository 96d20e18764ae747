// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_blocks.cpp: computes two keys at a time, each as two lines of 16 queries, since a pair of bf16 in an
// operand is two keys. Compiled for AVX-512 (F, BW, BF16): call only on a processor that has it.
#include <immintrin.h>

#include "kernels/attention/host/attention_blocks.hpp"
#include "kernels/matmul/host/tile_lines.hpp"

namespace kozero::kernels {
namespace {

constexpr int kKeys = 2;   // at a time
constexpr int kLines = 2;  // of 16 queries

/// 32 numbers, one per query.
struct Queries {
  __m512 line[kLines];

  Queries() = default;
  Queries(__m512 low, __m512 high) : line{low, high} {}
  explicit Queries(const float* from) : line{_mm512_load_ps(from), _mm512_load_ps(from + 16)} {}
  explicit Queries(const QueryValues& values) : Queries(values.of) {}
  void store(float* to) const {
    _mm512_store_ps(to, line[0]);
    _mm512_store_ps(to + 16, line[1]);
  }
};

/// The queries that see a key of the block, as a mask for each line.
struct Seen {
  std::uint32_t queries;

  Seen(const ScoreBlock& block, int key) : queries(block.diagonal ? ~std::uint32_t{0} << key : ~std::uint32_t{0}) {}
  [[nodiscard]] __mmask16 line(int l) const { return static_cast<__mmask16>(queries >> (16 * l)); }
};

/// p of one key.
inline Queries probabilities(const ScoreBlock& block, int key, __m512 c, const Queries& shift) {
  const Seen seen(block, key);
  const Queries s(block.scores + key * kTileRows);
  return {power_of_two(seen.line(0), _mm512_fmsub_ps(c, s.line[0], shift.line[0])),
          power_of_two(seen.line(1), _mm512_fmsub_ps(c, s.line[1], shift.line[1]))};
}

inline Queries product(const Queries& a, const Queries& b) {
  return {_mm512_mul_ps(a.line[0], b.line[0]), _mm512_mul_ps(a.line[1], b.line[1])};
}

/// The orders of a block as an operand: keys are the rows of a left operand, and k of a right operand.
template <class Storage>
struct Operand;

template <>
struct Operand<float> {
  static constexpr std::int64_t kLine = 16;

  static void store_left(float* block, int key, const Queries& x) {
    _mm512_store_ps(block + key * kStepWords, x.line[0]);
    _mm512_store_ps(block + (kTileRows + key) * kStepWords, x.line[1]);
  }
  static void store_right(float* block, int key, const Queries (&x)[kKeys]) {
    x[0].store(block + key * kTileRows);
    x[1].store(block + (key + 1) * kTileRows);
  }
  static void store_line(float* to, __mmask16 mask, __m512 x) { _mm512_mask_storeu_ps(to, mask, x); }
  static __m512 add_products(__m512 sum, const float* a, const float* b, std::int64_t count) {
    const auto mask = static_cast<__mmask16>(lanes_below(count, 16));
    return _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, a), _mm512_maskz_loadu_ps(mask, b), sum);
  }
};

/// Blocks of fp16 become operands in float.
template <>
struct Operand<Float16Bits> {
  static constexpr std::int64_t kLine = 16;

  static void store_line(Float16Bits* to, __mmask16 mask, __m512 x) {
    const __m256i rounded = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm512_mask_storeu_epi16(to, mask, _mm512_castsi256_si512(rounded));
  }
  static __m512 widened(const Float16Bits* from, std::int64_t count) {
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_maskz_loadu_epi16(lanes_below(count, 16), from)));
  }
  static __m512 add_products(__m512 sum, const Float16Bits* a, const Float16Bits* b, std::int64_t count) {
    return _mm512_fmadd_ps(widened(a, count), widened(b, count), sum);
  }
};

template <>
struct Operand<std::uint16_t> {
  static constexpr std::int64_t kLine = 32;

  static __m512i rounded(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
  static void store_left(std::uint16_t* block, int key, const Queries& x) {
    _mm512_store_si512(block + key * kTileRows, rounded(x.line[0], x.line[1]));
  }
  static void store_right(std::uint16_t* block, int key, const Queries (&x)[kKeys]) {
    // Words 0, 16, 1, 17, ...: the two keys of a query are neighbors.
    const __m512i pairs =
        _mm512_add_epi32(_mm512_set1_epi32(16 << 16),
                         _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                                            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
    for (int l = 0; l < kLines; ++l) {
      const __m512i line = _mm512_permutexvar_epi16(pairs, rounded(x[0].line[l], x[1].line[l]));
      _mm512_store_si512(block + (key / 2 * kTileRows + 16 * l) * 2, line);
    }
  }
  static void store_line(std::uint16_t* to, __mmask16 mask, __m512 x) {
    _mm512_mask_storeu_epi16(to, mask, rounded(x, _mm512_setzero_ps()));
  }
  static __m512 add_products(__m512 sum, const std::uint16_t* a, const std::uint16_t* b, std::int64_t count) {
    const std::uint32_t mask = lanes_below(count, 32);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, a)),
                            reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, b)));
  }
};

}  // namespace

void raise_largest(QueryValues& largest, const ScoreBlock& block) {
  Queries most(largest);
  for (int key = 0; key < kTileRows; ++key) {
    const Seen seen(block, key);
    const Queries s(block.scores + key * kTileRows);
    for (int l = 0; l < kLines; ++l) {
      most.line[l] = _mm512_mask_max_ps(most.line[l], seen.line(l), most.line[l], s.line[l]);
    }
  }
  most.store(largest.of);
}

void advance(RunningSoftmax& softmax, float c) {
  const Queries most(softmax.largest);
  const Queries before(softmax.shift);
  const Queries sum(softmax.sum);
  const __m512 factor = _mm512_set1_ps(c);
  Queries shift;
  Queries correction;
  for (int l = 0; l < kLines; ++l) {
    shift.line[l] = _mm512_mul_ps(factor, most.line[l]);
    correction.line[l] = power_of_two(0xFFFF, _mm512_sub_ps(before.line[l], shift.line[l]));
  }
  shift.store(softmax.shift.of);
  correction.store(softmax.correction.of);
  product(sum, correction).store(softmax.sum.of);
}

template <class Storage>
void pack_probabilities(Storage* right, RunningSoftmax& softmax, const ScoreBlock& block, float c) {
  const Queries shift(softmax.shift);
  const __m512 factor = _mm512_set1_ps(c);
  Queries sum(softmax.sum);
  for (int key = 0; key < kTileRows; key += kKeys) {
    Queries p[kKeys];
    for (int i = 0; i < kKeys; ++i) {
      p[i] = probabilities(block, key + i, factor, shift);
      for (int l = 0; l < kLines; ++l) sum.line[l] = _mm512_add_ps(sum.line[l], p[i].line[l]);
      if (block.kept != nullptr) p[i] = product(p[i], Queries(block.kept + (key + i) * kTileRows));
    }
    Operand<Storage>::store_right(right, key, p);
  }
  sum.store(softmax.sum.of);
}

template <class Storage>
void pack_gradients(const GradientOperands<Storage>& to, const ScoreBlock& block, const float* dp, float c,
                    const QueryValues& shift, const QueryValues& delta) {
  const Queries shifts(shift);
  const Queries deltas(delta);
  const __m512 factor = _mm512_set1_ps(c);
  for (int key = 0; key < kTileRows; key += kKeys) {
    Queries ds[kKeys];
    for (int i = 0; i < kKeys; ++i) {
      const Seen seen(block, key + i);
      Queries p = probabilities(block, key + i, factor, shifts);
      Queries gradient(dp + (key + i) * kTileRows);
      Queries kept_p = p;
      if (block.kept != nullptr) {
        const Queries kept(block.kept + (key + i) * kTileRows);
        kept_p = product(p, kept);
        gradient = product(gradient, kept);
      }
      for (int l = 0; l < kLines; ++l) {
        ds[i].line[l] = _mm512_maskz_mul_ps(seen.line(l), p.line[l], _mm512_sub_ps(gradient.line[l], deltas.line[l]));
      }
      Operand<Storage>::store_left(to.p_left, key + i, kept_p);
      Operand<Storage>::store_left(to.ds_left, key + i, ds[i]);
    }
    Operand<Storage>::store_right(to.ds_right, key, ds);
  }
}

template <class Storage>
void row_products(QueryValues& sum, const MatrixRows<Storage>& a, const Storage* b) {
  constexpr std::int64_t kLine = Operand<Storage>::kLine;
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    __m512 lanes = _mm512_setzero_ps();
    for (std::int64_t d = 0; r < a.rows && d < a.columns; d += kLine) {
      const std::int64_t at = r * a.stride + d;
      lanes = Operand<Storage>::add_products(lanes, a.data + at, b + at, a.columns - d);
    }
    sum.of[r] = _mm512_reduce_add_ps(lanes);
  }
}

void scale_columns(float* block, const QueryValues& factor) {
  const Queries factors(factor);
  for (int r = 0; r < kTileRows; ++r) product(Queries(block + r * kTileRows), factors).store(block + r * kTileRows);
}

template <class Storage>
void store_block(const MatrixPart<Storage>& to, const float* block, float factor) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (std::int64_t r = 0; r < to.rows; ++r) {
    for (int l = 0; l < kLines; ++l) {
      const auto mask = static_cast<__mmask16>(lanes_below(to.columns - 16 * l, 16));
      const __m512 x = _mm512_mul_ps(factors, _mm512_load_ps(block + r * kTileRows + 16 * l));
      Operand<Storage>::store_line(to.data + r * to.stride + 16 * l, mask, x);
    }
  }
}

template <class Storage>
void store_transposed(const MatrixPart<Storage>& to, const float* block, const QueryValues& factor) {
  const Queries factors(factor);
  for (int d = 0; d < kTileRows; d += 16) {
    const auto mask = static_cast<__mmask16>(lanes_below(to.columns - d, 16));
    for (int l = 0; l < kLines; ++l) {
      __m512i lines[16];
      for (int i = 0; i < 16; ++i) {
        const __m512 x = _mm512_load_ps(block + (d + i) * kTileRows + 16 * l);
        lines[i] = _mm512_castps_si512(_mm512_mul_ps(x, factors.line[l]));
      }
      transpose(lines);
      for (int i = 0; i < 16 && 16 * l + i < to.rows; ++i) {
        Operand<Storage>::store_line(to.data + (16 * l + i) * to.stride + d, mask, _mm512_castsi512_ps(lines[i]));
      }
    }
  }
}

template void pack_probabilities<float>(float*, RunningSoftmax&, const ScoreBlock&, float);
template void pack_probabilities<std::uint16_t>(std::uint16_t*, RunningSoftmax&, const ScoreBlock&, float);
template void pack_gradients<float>(const GradientOperands<float>&, const ScoreBlock&, const float*, float,
                                    const QueryValues&, const QueryValues&);
template void pack_gradients<std::uint16_t>(const GradientOperands<std::uint16_t>&, const ScoreBlock&, const float*,
                                            float, const QueryValues&, const QueryValues&);
template void row_products<float>(QueryValues&, const MatrixRows<float>&, const float*);
template void row_products<std::uint16_t>(QueryValues&, const MatrixRows<std::uint16_t>&, const std::uint16_t*);
template void row_products<Float16Bits>(QueryValues&, const MatrixRows<Float16Bits>&, const Float16Bits*);
template void store_block<float>(const MatrixPart<float>&, const float*, float);
template void store_block<std::uint16_t>(const MatrixPart<std::uint16_t>&, const float*, float);
template void store_block<Float16Bits>(const MatrixPart<Float16Bits>&, const float*, float);
template void store_transposed<float>(const MatrixPart<float>&, const float*, const QueryValues&);
template void store_transposed<std::uint16_t>(const MatrixPart<std::uint16_t>&, const float*, const QueryValues&);
template void store_transposed<Float16Bits>(const MatrixPart<Float16Bits>&, const float*, const QueryValues&);

}  // namespace kozero::kernels
