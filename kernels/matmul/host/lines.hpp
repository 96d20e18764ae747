// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// lines.hpp: a cache line of 16 floats in registers, with which all blocks of the host are packed, multiplied and
// stored. The same sources are compiled once for each kind of vector instructions, in a namespace of its own:
//   KOZERO_LINES   avx512_bf16, avx512 (F, BW), avx2 (AVX2, FMA, F16C), base (any processor, also Arm's NEON)
// Every operation is one that IEEE 754 rounds correctly, in the same order everywhere, so that results in float have
// the same bits on all of them (base on x86 rounds a product before its sum). In this header:
//   2^t = 2^n 2^r      n = round(t), r = t - n, |r| <= 1/2
// 2^r is the polynomial of degree 6 with the least relative error, 1.9e-9; in float it is within 8e-8.
// The files behind this header define Line and, for Line x, y, z and `count` existing elements:
//   zero()  broadcast(f)  load(p)  store(p, x)             p on a cache line
//   load(p, count)  store(p, count, x)                     p: floats, or bf16 or fp16, which are widened and rounded
//   add subtract multiply divide larger (x, y)             fused(x, y, z) = x y + z, rounded once
//   from_lane(x, first)                                    x with zeros in the lanes below `first`
//   larger_from(x, y, first)                               larger(x, y), x in the lanes below `first`
//   power_of_two_scale(s)                                  2^n of s = n + 1.5 * 2^23, for n in [-127, 127]; 0 for -127
//   transpose(x)                                           16 lines as a matrix
// Rounding to bf16 takes denormal numbers for zero, as the processors' instruction does.
#pragma once
#include <cstdint>
#include <initializer_list>

// Whether blocks of pairs of bf16 are packed and multiplied in these lines: 1 for avx512_bf16.
#if KOZERO_LINE_BITS == 512 && defined(__AVX512BF16__)
#define KOZERO_LINES_OF_PAIRS 1
#else
#define KOZERO_LINES_OF_PAIRS 0
#endif

#if KOZERO_LINE_BITS == 512
#include "kernels/matmul/host/lines_avx512.hpp"
#elif KOZERO_LINE_BITS == 256
#include "kernels/matmul/host/lines_avx2.hpp"
#else
#include "kernels/matmul/host/lines_base.hpp"
#endif

namespace kozero::kernels::KOZERO_LINES {

inline constexpr std::int64_t kLineFloats = 16;

/// 2^t for t < 127. Results below 2^-126.5 are zero; NaN stays NaN.
inline Line power_of_two(const Line& t) {
  const Line rounder = broadcast(12582912.0F);         // 1.5 * 2^23: adding it leaves an integer in the low bits
  const Line clamped = larger(broadcast(-127.0F), t);  // in this order NaN stays
  const Line shifted = add(clamped, rounder);
  const Line r = subtract(clamped, subtract(shifted, rounder));
  Line series = broadcast(0x1.41d334p-13F);
  for (const float next : {0x1.5f456ap-10F, 0x1.3b2dbcp-7F, 0x1.c6aed4p-5F, 0x1.ebfbdap-3F, 0x1.62e43p-1F, 1.0F}) {
    series = fused(series, r, broadcast(next));
  }
  return multiply(series, power_of_two_scale(shifted));
}

/// The sum of the lanes: those 8 apart are added, then those 4, 2 and 1 apart.
inline float sum_of(const Line& x) {
  alignas(64) float lanes[kLineFloats];
  store(lanes, x);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace kozero::kernels::KOZERO_LINES
