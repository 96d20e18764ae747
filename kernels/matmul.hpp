// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul.hpp: the matrix product of row-major dense matrices.
//   c = op(a) op(b)   or   c += op(a) op(b)   or   c = op(a) op(b) + bias
//   c (M, N)   op(a) (M, K)   op(b) (K, N)   bias (N)
// On the host a tile unit of the processor computes it (matmul_tiles.cpp: AMX or AVX-512) or oneDNN (matmul_onednn.cpp;
// matmul_host.cpp chooses), on NVIDIA GPUs cuBLASLt (matmul_cublaslt.cpp). What a back end sets up for a shape is kept
// and used again; shape and operation alone choose the algorithm, so a call repeats bit for bit at a given number of
// threads, and by tiles at any. Sums are in float. To be called from one host thread. Throws Error(internal) where
// extents disagree. Runs on `space`; returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

/// How a stored matrix enters a product.
enum class Op { none, transpose };

/// Everything about a product but its arrays.
struct ProductShape {
  std::int64_t m, n, k;
  Op op_a, op_b;
  bool accumulate, has_bias;

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

/// The back end's product of extents above zero. `bias` is null where shape.has_bias is false.
template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b, const In* bias);

/// Who is to multiply: the fastest there is, or the library also where a tile unit would be used.
enum class Products { fastest, library };
void choose_products(Products products);

/// Who multiplies matrices of T: "AMX", "AVX-512 BF16", "AVX-512", "oneDNN", "cuBLASLt".
template <class T>
const char* multiplier();

/// Multiplies what the first-level caches hold, on all threads: what the machine can give. Returns the operations,
/// 2 M N K of all products; 0 where the library multiplies.
template <class Space, class T>
double product_probe(const Space& space);

/// Bytes that the back end itself holds at present: packed operands, scratch memory.
std::int64_t matmul_memory();

/// The shape of c = op(a) op(b), checked.
template <class C, class A, class B>
ProductShape product_shape(const C& c, Op op_a, const A& a, Op op_b, const B& b) {
  const int inner_a = op_a == Op::none ? 1 : 0;
  const int inner_b = op_b == Op::none ? 0 : 1;
  require(a.extent(inner_a) == b.extent(inner_b), "matmul: the inner extents of op(a) and op(b) disagree");
  require(c.extent(0) == a.extent(1 - inner_a) && c.extent(1) == b.extent(1 - inner_b),
          "matmul: the extents of c and op(a) op(b) disagree");
  const auto extent = [](std::size_t of) { return static_cast<std::int64_t>(of); };
  return {extent(c.extent(0)), extent(c.extent(1)), extent(a.extent(inner_a)), op_a, op_b, false, false};
}

/// c(m, n) = bias(n), or 0 without a bias: the product of a zero inner extent.
template <class Space, class Out, class In>
void empty_product(const Space& space, const ProductShape& shape, Out* c, const In* bias) {
  const std::int64_t columns = shape.n;
  for_each_element(
      space, "kozero::matmul::empty", shape.m * columns,
      KOKKOS_LAMBDA(std::int64_t i) { c[i] = bias == nullptr ? Out(0) : static_cast<Out>(bias[i % columns]); });
}

template <class Space, class Out, class In>
void multiply_or_fill(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b, const In* bias) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k > 0) {
    multiply(space, shape, c, a, b, bias);
  } else if (!shape.accumulate) {
    empty_product(space, shape, c, bias);
  }
}

/// c = op(a) op(b), plus c where `accumulate`. a and b hold one type; c may be float where they hold a 16-bit one.
template <class Space, class Out, class InA, class InB>
void matmul(const Space& space, Matrix<Out> c, Op op_a, Matrix<InA> a, Op op_b, Matrix<InB> b, bool accumulate) {
  static_assert(std::is_same_v<const InA, const InB>, "a and b must hold the same type");
  ProductShape shape = product_shape(c, op_a, a, op_b, b);
  shape.accumulate = accumulate;
  multiply_or_fill<Space, Out, std::remove_const_t<InA>>(space, shape, c.data(), a.data(), b.data(), nullptr);
}

/// c = op(a) op(b) + bias, the bias over the columns of c.
template <class Space, class Out, class InA, class InB, class InBias>
void matmul(const Space& space, Matrix<Out> c, Op op_a, Matrix<InA> a, Op op_b, Matrix<InB> b, Vector<InBias> bias) {
  static_assert(std::is_same_v<const InA, const InB> && std::is_same_v<const InA, const InBias>,
                "a, b and the bias must hold the same type");
  ProductShape shape = product_shape(c, op_a, a, op_b, b);
  require(bias.extent(0) == c.extent(1), "matmul: the bias must have one element for each column of c");
  shape.has_bias = true;
  multiply_or_fill<Space, Out, std::remove_const_t<InA>>(space, shape, c.data(), a.data(), b.data(), bias.data());
}

}  // namespace kozero::kernels
