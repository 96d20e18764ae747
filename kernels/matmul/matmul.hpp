// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matmul.hpp: the matrix product of row-major dense matrices.
//   c = op(a) op(b)   or   c += op(a) op(b)   or   c = op(a) op(b) + bias   or   c = op(a) op(b) [+ bias] + addend
//   c, addend (M, N)   op(a) (M, K)   op(b) (K, N)   bias (N)
// For a layer followed by a GELU, product and GELU are one call, so that a back end may fuse them (cuBLASLt and AMX
// do):
//   hidden = op(a) op(b) + bias, active = gelu(hidden)      and      dhidden = op(a) op(b) * gelu'(hidden)
// Likewise the gradients of a layer's weight and bias, where dy (K, C) is a (K, M) or b (K, N):
//   dweight = a^T b or dweight += a^T b, dbias(c) += sum over k of dy(k, c)
// On the host, a tile unit of the processor (matmul_tiles.cpp: AMX, AVX-512, AVX2, NEON) computes the product, except
// that products of at most 8 rows read each weight once (matmul_few_rows.cpp); matmul_host.cpp chooses. On NVIDIA GPUs
// cuBLASLt does (matmul_cublaslt.cpp). Back ends cache their setup per shape. Shape, operation and a table
// (product_tuning.hpp) choose the algorithm, so that a call repeats bit for bit, on a host with any number of threads.
// Sums are in float. Call from one host thread. Throws Error(internal) if extents disagree. Runs on `space`; returns
// without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string>
#include <type_traits>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/fill.hpp"
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"
#include "kernels/ops/bias.hpp"
#include "kernels/ops/gelu.hpp"

namespace kozero::kernels {

/// The operation on a stored matrix in a product.
enum class Op { none, transpose };

/// A product without its arrays.
struct ProductShape {
  std::int64_t m, n, k;
  Op op_a, op_b;
  bool accumulate, has_bias;  ///< whether c or an addend, and a bias, are added

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

/// Further inputs and outputs of a product; null if absent.
template <class Out, class In>
struct Epilogue {
  const In* bias = nullptr;     ///< (N), added to each row; set if shape.has_bias
  const Out* addend = nullptr;  ///< (M, N), added if shape.accumulate; null then: c itself
  Out* active = nullptr;        ///< (M, N), gets gelu(c)
  const Out* hidden = nullptr;  ///< (M, N), c is multiplied by gelu'(hidden)
};

/// The back end's product of extents above zero.
template <class Space, class Out, class In>
void multiply(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
              const Epilogue<Out, In>& epilogue);

/// The operands of a product.
enum class Operand { a, b };

/// The back end's product c = a^T b, or c += a^T b, of extents above zero. Returns whether it also wrote the sums over
/// the rows of one operand, to the front of `workspace`.
template <class Space, class T>
bool multiply_and_sum(const Space& space, const ProductShape& shape, float* c, Matrix<const T> a, Matrix<const T> b,
                      Operand summed, Vector<float> workspace);

/// Applies the epilogue except its bias to a completed product.
template <class Space, class Out, class In>
void apply_gelu(const Space& space, const ProductShape& shape, Out* c, const Epilogue<Out, In>& epilogue) {
  const auto extent = static_cast<std::size_t>(shape.m * shape.n);
  const Vector<Out> all(c, extent);
  if (epilogue.active != nullptr) gelu_forward(space, Vector<Out>(epilogue.active, extent), VectorIn<Out>(all));
  if (epilogue.hidden != nullptr) {
    gelu_backward(space, all, VectorIn<Out>(all), VectorIn<Out>(epilogue.hidden, extent));
  }
}

/// The choice of units for products: the fastest; those whose bits are the same on every processor, which add in the
/// order of k with one rounding per term; or, on GPUs, tensor cores also for f32, of whose 23 mantissa bits they read
/// 10 (TF32). A back end ignores a choice that it does not have.
enum class Products { fastest, portable, tf32 };
void choose_products(Products products);

/// The unit or library that multiplies matrices of T: "AMX", "AVX-512 BF16", "AVX-512", "AVX2", "base", "cuBLASLt".
template <class T>
const char* multiplier();

/// The order and rounding of products of T, which a checkpoint records: kPortable for the same bits on every processor,
/// else the unit's name or what it does.
template <class T>
std::string bits_of_products();
inline constexpr const char* kPortable = "one chain of fused multiply-adds";

/// Whether the processor lacks fused multiply-adds, so that its bits differ from those of other processors.
bool lacks_fused_multiply_add();

/// Why the processor's fastest unit for T is not used: "AMX refused by the kernel (Operation not permitted)". Empty if
/// it is used.
template <class T>
std::string multiplier_note();

/// Multiplies blocks that fit the first-level caches, on all threads, to measure the machine's peak. Returns the
/// operations, 2 M N K of all products; 0 on a GPU.
template <class Space, class T>
double product_probe(const Space& space);

/// Bytes of device memory that the back end allocates at its first product. 0 on a host.
std::int64_t product_workspace();

/// Returns the shape of c = op(a) op(b) and checks extents.
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

/// c(m, n) = bias(n) + addend(m, n), each if present: the result for a zero inner extent.
template <class Space, class Out, class In>
static void empty_product(const Space& space, const ProductShape& shape, Out* c, const In* bias, const Out* addend) {
  const std::int64_t columns = shape.n;
  for_each_element(
      space, "kozero::matmul::empty", shape.m * columns, KOKKOS_LAMBDA(std::int64_t i) {
        const float of_bias = bias == nullptr ? 0.0F : static_cast<float>(bias[i % columns]);
        c[i] = static_cast<Out>(addend == nullptr ? of_bias : of_bias + static_cast<float>(addend[i]));
      });
}

template <class Space, class Out, class In>
void multiply_or_fill(const Space& space, const ProductShape& shape, Out* c, const In* a, const In* b,
                      const Epilogue<Out, In>& epilogue = {}) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k > 0) {
    multiply(space, shape, c, a, b, epilogue);
  } else if (!shape.accumulate || epilogue.addend != nullptr) {
    empty_product(space, shape, c, epilogue.bias, epilogue.addend);
    apply_gelu(space, shape, c, epilogue);
  }
}

/// c = op(a) op(b), plus c if `accumulate`. a and b have one type; c may be float if that is a 16-bit type.
template <class Space, class Out, class InA, class InB>
void matmul(const Space& space, Matrix<Out> c, Op op_a, Matrix<InA> a, Op op_b, Matrix<InB> b, bool accumulate) {
  static_assert(std::is_same_v<const InA, const InB>, "a and b must hold the same type");
  ProductShape shape = product_shape(c, op_a, a, op_b, b);
  shape.accumulate = accumulate;
  multiply_or_fill<Space, Out, std::remove_const_t<InA>>(space, shape, c.data(), a.data(), b.data());
}

/// Returns the shape of c = op(a) op(b) + bias and checks extents.
template <class C, class A, class B, class Bias>
ProductShape biased_shape(const C& c, Op op_a, const A& a, Op op_b, const B& b, const Bias& bias) {
  ProductShape shape = product_shape(c, op_a, a, op_b, b);
  require(bias.extent(0) == c.extent(1), "matmul: the bias must have one element for each column of c");
  shape.has_bias = true;
  return shape;
}

/// c = op(a) op(b) + bias, the bias over the columns of c.
template <class Space, class Out, class InA, class InB, class InBias>
void matmul(const Space& space, Matrix<Out> c, Op op_a, Matrix<InA> a, Op op_b, Matrix<InB> b, Vector<InBias> bias) {
  static_assert(std::is_same_v<const InA, const InB> && std::is_same_v<const InA, const InBias>,
                "a, b and the bias must hold the same type");
  const ProductShape shape = biased_shape(c, op_a, a, op_b, b, bias);
  multiply_or_fill<Space, Out, std::remove_const_t<InA>>(space, shape, c.data(), a.data(), b.data(),
                                                         {.bias = bias.data()});
}

/// c = a op(b) + bias + addend, rounded once (cuBLASLt: after each); an empty bias is omitted. c must not be an input.
template <class Space, class T>
void matmul_add(const Space& space, Matrix<T> c, MatrixIn<T> a, Op op_b, MatrixIn<T> b, VectorIn<T> bias,
                MatrixIn<T> addend) {
  ProductShape shape =
      bias.extent(0) > 0 ? biased_shape(c, Op::none, a, op_b, b, bias) : product_shape(c, Op::none, a, op_b, b);
  require(addend.extent(0) == c.extent(0) && addend.extent(1) == c.extent(1),
          "matmul_add: c and the addend differ in extent");
  shape.accumulate = true;
  multiply_or_fill<Space, T, T>(space, shape, c.data(), a.data(), b.data(),
                                {.bias = bias.extent(0) > 0 ? bias.data() : nullptr, .addend = addend.data()});
}

/// hidden = op(a) op(b) + bias, active = gelu(hidden), where gelu reads hidden before or after it is rounded; an empty
/// bias is omitted.
template <class Space, class T>
void matmul_gelu(const Space& space, Matrix<T> hidden, Matrix<T> active, MatrixIn<T> a, Op op_b, MatrixIn<T> b,
                 VectorIn<T> bias) {
  const ProductShape shape = bias.extent(0) > 0 ? biased_shape(hidden, Op::none, a, op_b, b, bias)
                                                : product_shape(hidden, Op::none, a, op_b, b);
  require(active.extent(0) == hidden.extent(0) && active.extent(1) == hidden.extent(1),
          "matmul_gelu: active and hidden differ in extent");
  multiply_or_fill<Space, T, T>(space, shape, hidden.data(), a.data(), b.data(),
                                {.bias = bias.extent(0) > 0 ? bias.data() : nullptr, .active = active.data()});
}

/// dhidden = (op(a) op(b)) * gelu'(hidden), element by element, the product rounded to T before or not.
template <class Space, class T>
void matmul_gelu_gradient(const Space& space, Matrix<T> dhidden, MatrixIn<T> a, Op op_b, MatrixIn<T> b,
                          MatrixIn<T> hidden) {
  const ProductShape shape = product_shape(dhidden, Op::none, a, op_b, b);
  require(dhidden.extent(0) == hidden.extent(0) && dhidden.extent(1) == hidden.extent(1),
          "matmul_gelu_gradient: dhidden and hidden differ in extent");
  multiply_or_fill<Space, T, T>(space, shape, dhidden.data(), a.data(), b.data(), {.hidden = hidden.data()});
}

/// dweight = a^T b, plus dweight if `accumulate`; dbias += sum over the rows of `dy`. The workspace has
/// row_reduction_workspace(C) floats. A fused product overwrites its sums and may be timed, so it writes them to the
/// workspace. They are then added to dbias, with the same bits whether or not dbias was zero before.
template <class Space, class T>
void matmul_bias_gradient(const Space& space, Matrix<float> dweight, MatrixIn<T> a, MatrixIn<T> b, bool accumulate,
                          Operand dy, Vector<float> dbias, Vector<float> workspace) {
  ProductShape shape = product_shape(dweight, Op::transpose, a, Op::none, b);
  shape.accumulate = accumulate;
  const MatrixIn<T> summed = dy == Operand::a ? a : b;
  const auto columns = static_cast<std::int64_t>(summed.extent(1));
  require(dbias.extent(0) == summed.extent(1), "matmul_bias_gradient: dbias (C) and dy (K, C) differ in C");
  require(static_cast<std::int64_t>(workspace.extent(0)) >= row_reduction_workspace(columns),
          "matmul_bias_gradient: the workspace is too small");
  bool has_sums = false;
  if (shape.m > 0 && shape.n > 0 && shape.k > 0) {
    has_sums = multiply_and_sum<Space, T>(space, shape, dweight.data(), a, b, dy, workspace);
  } else {
    multiply_or_fill<Space, float, T>(space, shape, dweight.data(), a.data(), b.data());
  }
  if (has_sums) {
    add_into(space, dbias, Vector<const float>(slice(workspace, 0, columns)));
  } else {
    bias_backward(space, dbias, summed, workspace);
  }
}

}  // namespace kozero::kernels
