// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cublaslt_mock_product.hpp: the mock's product by plain loops, with sums in float, and its epilogues.
//   algorithm 0   one sum over the inner extent
//   algorithm 2   two sums (split K), through the workspace
//   algorithm 3   one sum, last element first; 4: the same, by atomics in d
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "cublaslt_mock_problem.hpp"

namespace kozero::cublaslt_mock {

inline float element(cudaDataType_t type, const void* data, std::int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const _Float16*>(data)[i]);
  return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[i]) << 16);
}

inline void store(cudaDataType_t type, void* data, std::int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else if (type == CUDA_R_16F) {
    static_cast<_Float16*>(data)[i] = static_cast<_Float16>(value);
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = value != value ? 0x7FC00000U : bits + 0x7FFFU + (bits >> 16 & 1U);
    static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(nearest >> 16);
  }
}

struct Arrays {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
};

/// One call of cublasLtMatmul(), with copies of its descriptors.
class Computation {
 public:
  Computation(const Problem& problem, const Algorithm& algorithm, const Arrays& arrays, float* workspace)
      : problem_(problem), operation_(problem.operation), algorithm_(algorithm), at_(arrays), workspace_(workspace) {}

  /// Replaces each pointer by `f(pointer, bytes, written)`.
  template <class F>
  void translate(const F& f) {
    at_.a = f(const_cast<void*>(at_.a), bytes_of(problem_.a), false);
    at_.b = f(const_cast<void*>(at_.b), bytes_of(problem_.b), false);
    at_.c = f(const_cast<void*>(at_.c), bytes_of(problem_.c), false);
    at_.d = f(at_.d, bytes_of(problem_.d), true);
    const std::int64_t element = width(problem_.d.type);
    const std::int64_t vector = operation_.epilogue == CUBLASLT_EPILOGUE_BGRADB ? problem_.columns() : problem_.rows();
    if (operation_.bias != nullptr)
      operation_.bias = f(operation_.bias, vector * element, has_sums(operation_.epilogue));
    if (operation_.auxiliary != nullptr) {
      const std::int64_t last = operation_.auxiliary_stride * (problem_.columns() - 1) + problem_.rows();
      operation_.auxiliary = f(operation_.auxiliary, last * element, has_gelu(operation_.epilogue));
    }
    if (algorithm_.workspace > 0)
      workspace_ = static_cast<float*>(f(workspace_, static_cast<std::int64_t>(algorithm_.workspace), true));
  }

  void run() const {
    if (has_sums(operation_.epilogue)) sum_operand();
    for (std::int64_t j = 0; j < problem_.columns(); ++j) {
      for (std::int64_t i = 0; i < problem_.rows(); ++i) apply_epilogue(i, j, product(i, j));
    }
  }

 private:
  [[nodiscard]] float of_a(std::int64_t i, std::int64_t k) const {
    const bool plain = operation_.transposed_a == CUBLAS_OP_N;
    return element(problem_.a.type, at_.a, plain ? i + k * problem_.a.stride : k + i * problem_.a.stride);
  }
  [[nodiscard]] float of_b(std::int64_t k, std::int64_t j) const {
    const bool plain = operation_.transposed_b == CUBLAS_OP_N;
    return element(problem_.b.type, at_.b, plain ? k + j * problem_.b.stride : j + k * problem_.b.stride);
  }

  [[nodiscard]] float sum(std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end) const {
    float sum = 0.0F;
    for (std::int64_t k = begin; k < end; ++k) sum += of_a(i, k) * of_b(k, j);
    return sum;
  }

  [[nodiscard]] float product(std::int64_t i, std::int64_t j) const {
    const std::int64_t inner = problem_.inner();
    if (algorithm_.number == 3 || algorithm_.number == 4) {
      float sum = 0.0F;
      for (std::int64_t k = inner; k-- > 0;) sum += of_a(i, k) * of_b(k, j);
      return sum;
    }
    if (algorithm_.number == 0) return sum(i, j, 0, inner);
    workspace_[0] = sum(i, j, 0, inner / 2);
    workspace_[1] = sum(i, j, inner / 2, inner);
    return workspace_[0] + workspace_[1];
  }

  /// The tanh form, and its derivative.
  static constexpr double kCubic = 0.044715;
  static constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  ///< of 2 / pi
  static double tanh_of(double x) { return std::tanh(kRoot * (x + kCubic * x * x * x)); }
  static double gelu(double x) { return 0.5 * x * (1.0 + tanh_of(x)); }
  static double gelu_slope(double x) {
    const double t = tanh_of(x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kRoot * (1.0 + 3.0 * kCubic * x * x);
  }

  void apply_epilogue(std::int64_t i, std::int64_t j, float product) const {
    const cudaDataType_t type = problem_.d.type;
    const std::int64_t index = i + j * problem_.d.stride;
    const std::int64_t auxiliary = i + j * operation_.auxiliary_stride;
    float value = at_.alpha * product;
    if (at_.beta != 0.0F) value += at_.beta * element(type, at_.c, i + j * problem_.c.stride);
    if (has_bias(operation_.epilogue)) value += element(type, operation_.bias, i);
    if (has_gelu(operation_.epilogue)) {
      store(type, operation_.auxiliary, auxiliary, value);
      value = static_cast<float>(gelu(static_cast<double>(value)));
    }
    if (operation_.epilogue == CUBLASLT_EPILOGUE_DGELU) {
      value *= static_cast<float>(gelu_slope(static_cast<double>(element(type, operation_.auxiliary, auxiliary))));
    }
    store(type, at_.d, index, value);
  }

  void sum_operand() const {
    const bool of_a_rows = operation_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (std::int64_t i = 0; i < (of_a_rows ? problem_.rows() : problem_.columns()); ++i) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < problem_.inner(); ++k) sum += of_a_rows ? of_a(i, k) : of_b(k, i);
      store(problem_.d.type, operation_.bias, i, sum);
    }
  }

  static std::int64_t width(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }
  static std::int64_t bytes_of(const Layout& of) {
    return of.columns == 0 ? 0 : (of.stride * (of.columns - 1) + of.rows) * width(of.type);
  }

  Problem problem_;
  Operation operation_;
  Algorithm algorithm_;
  Arrays at_;
  float* workspace_;
};

/// Runs the product when the stream reaches it (cuda_mock.cpp: at once).
void compute(const Computation& computation, void* stream);

}  // namespace kozero::cublaslt_mock
