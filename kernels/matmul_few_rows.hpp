// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_few_rows.hpp: the matrix product on the host where op(a) = a has a few rows, as generation has.
//   c (M, N) = a (M, K) op(b) [+ bias] [+ c or addend]        M <= kFewRows
// Each element of b is read once, in the order of memory, by all threads; its use is M multiplications, so memory sets
// the speed, and b may have 16 bits. b (K, N) is cut into panels of columns and ranges of rows, whose partial sums a
// second dispatch adds in order; of b (N, K) each row is a dot product with every row of a. Sums are in float. The bits
// of a row of c depend on its row of a and on b alone: not on M, nor on the number of threads.
#pragma once
#include <cstdint>

#include <kozero/kernels/matmul.hpp>

namespace kozero::kernels {

inline constexpr std::int64_t kFewRows = 8;

/// Whether multiply_few_rows computes this shape.
inline bool has_few_rows(const ProductShape& shape) { return shape.m <= kFewRows && shape.op_a == Op::none; }

/// multiply() of matmul.hpp with nothing but a bias and an addend behind it.
template <class Out, class In>
void multiply_few_rows(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                       const Epilogue<Out, In>& epilogue);

}  // namespace kozero::kernels
