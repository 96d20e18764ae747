// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul_library.hpp: the host's products without a tile unit: by oneDNN (matmul_onednn.cpp), or in a build without it
// by loops of our own (matmul_loops.cpp).
#pragma once
#include <cstdint>

#include <kozero/kernels/matmul.hpp>

namespace kozero::kernels {

/// "oneDNN", "loops".
const char* library_name();

/// multiply() of matmul.hpp without its GELU. Throws Error(internal) where the library fails.
template <class Out, class In>
void multiply_by_library(const Device& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                         const Epilogue<Out, In>& epilogue);

/// A row-major matrix inside a larger one.
template <class T>
struct Block {
  T* data;
  std::int64_t row;  ///< elements from one row to the next
};

/// out (m, n) = alpha op(a) op(b) + beta out, on the calling thread alone, in a parallel region too. Aborts where the
/// library fails.
void multiply_on_this_thread(Block<float> out, Op op_a, Block<const float> a, Op op_b, Block<const float> b,
                             std::int64_t m, std::int64_t n, std::int64_t k, float alpha, float beta);

}  // namespace kozero::kernels
