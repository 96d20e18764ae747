// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_cublaslt.cpp: the cuBLASLt products and epilogues that the matrix product chooses, on the mock. test_matmul.cpp
// and test_product_tuning.cpp check the values, also on the mock.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "kernels/matmul/cuda/cublaslt_product.hpp"
#include "kernels/matmul/product_tuning.hpp"

#include "device_on_host/cublaslt_mock.hpp"
#include "gradient_case.hpp"

namespace kozero::kernels {
namespace {

using cublaslt_mock::Counts;

/// The epilogues that work() used.
template <class Work>
Counts counted(const Work& work) {
  cublaslt_mock::start_counting();
  work();
  Device().fence();
  return cublaslt_mock::counts();
}

/// hidden, active (M, N) of one product through a GELU, and its gradient.
template <class T>
Counts of_gelu(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Filled<T> a(reference::numbers<T>(m * k, 1)), b(reference::numbers<T>(k * n, 2));
  const Filled<T> bias(reference::numbers<T>(n, 4)), hidden(m * n), active(m * n);
  return counted([&] {
    matmul_gelu<Device, T>(Device(), hidden.matrix(m, n), active.matrix(m, n), a.input(m, k), Op::none, b.input(k, n),
                           bias.input());
    matmul_gelu_gradient<Device, T>(Device(), active.matrix(m, n), a.input(m, k), Op::none, b.input(k, n),
                                    hidden.input(m, n));
  });
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a GELU is part of the product where the rows of its input allow it", "[cublaslt]",
                        reference::StoredTypes) {
  const Counts fused = {{CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1}, {CUBLASLT_EPILOGUE_DGELU, 1}};
  const Counts apart = {{CUBLASLT_EPILOGUE_BIAS, 1}, {CUBLASLT_EPILOGUE_DEFAULT, 1}};
  CHECK(of_gelu<TestType>(24, 16, 40) == fused);
  CHECK(of_gelu<TestType>(24, 20, 40) == apart);
  CHECK(of_gelu<TestType>(24, 13, 40) == apart);
  cublaslt_mock::support_epilogues(false);
  CHECK(of_gelu<TestType>(26, 16, 40) == apart);
  cublaslt_mock::support_epilogues(true);
}

TEMPLATE_LIST_TEST_CASE("the gradient of a bias is summed apart, and in the product where the table says so",
                        "[cublaslt]", reference::StoredTypes) {
  const auto summed = GENERATE(Operand::a, Operand::b);
  const GradientCase<TestType> of{24, 16, 40, summed, false};
  CHECK(counted([&] { check_gradients(of); }) == Counts{{CUBLASLT_EPILOGUE_DEFAULT, 1}});

  begin_product_tuning(1);
  check_gradients(of);
  const TunedProduct product = end_product_tuning().at(0);
  const auto fused = std::find_if(product.algorithms.begin(), product.algorithms.end(),
                                  [](const std::string& algorithm) { return !algorithm.starts_with("apart "); });
  REQUIRE(fused != product.algorithms.end());
  use_product_algorithms({{product.kind, *fused}}, "x.toml");
  const auto epilogue = summed == Operand::a ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
  CHECK(counted([&] { check_gradients(of); }) == Counts{{epilogue, 1}});
  use_product_algorithms({});

  const GradientCase<TestType> unaligned{24, 16, 40, summed, false, 1};
  CHECK(counted([&] { check_gradients(unaligned); }) == Counts{{CUBLASLT_EPILOGUE_DEFAULT, 1}});
}

TEST_CASE("products go by the algorithm that the table names, and by the heuristic's first without one", "[cublaslt]") {
  const Case<> of{9, 17, 301, Op::none, Op::none};
  const std::vector<float> by_rule = product_of(of, false);
  begin_product_tuning(1);
  product_of(of, false);
  const TunedProduct product = end_product_tuning().at(0);
  REQUIRE(product.algorithms.size() == 3);  // the heuristic's second result is not supported
  for (std::size_t algorithm = 0; algorithm < product.algorithms.size(); ++algorithm) {
    use_product_algorithms({{product.kind, product.algorithms[algorithm]}}, "x.toml");
    CHECK(reference::same_bits(product_of(of, false), by_rule) == (algorithm == 0));
  }
  use_product_algorithms({});
}

TEST_CASE("the mock refuses what the manual forbids", "[cublaslt]") {
  using Catch::Matchers::ContainsSubstring;
  cublasLtHandle_t handle = nullptr;
  cublasLtCreate(&handle);
  Kokkos::View<float*, Kokkos::HostSpace> memory("memory", 4096);
  const auto run = [&](std::int64_t n, Fusion fusion, std::int64_t skipped, std::size_t workspace_skipped,
                       std::int64_t hidden_skipped = 0) {
    CublasltProduct<float, float> product(handle, {{16, n, 8, Op::none, Op::none, false, false}, fusion, true});
    float* const at = memory.data() + skipped;
    Epilogue<float, float> epilogue;
    if (fusion == Fusion::gelu_gradient) epilogue.hidden = at + 2048 + hidden_skipped;
    product.run(0, nullptr, reinterpret_cast<char*>(memory.data() + 3072) + workspace_skipped, at, at + 512, at + 1024,
                epilogue);
  };
  CHECK_NOTHROW(run(16, Fusion::none, 0, 0));
  CHECK_NOTHROW(run(16, Fusion::gelu_gradient, 0, 0));
  CHECK_THROWS_WITH(run(16, Fusion::none, 1, 0), ContainsSubstring("less aligned than the algorithm was chosen for"));
  CHECK_THROWS_WITH(run(16, Fusion::gelu_gradient, 0, 0, 1), ContainsSubstring("auxiliary matrix is less aligned"));
  CHECK_THROWS_WITH(run(16, Fusion::none, 0, 4), ContainsSubstring("workspace"));
  const ProductShape narrow{16, 12, 8, Op::none, Op::none, false, false};
  CHECK_FALSE(CublasltProduct<float, float>(handle, {narrow, Fusion::gelu, true}).exists());

  cublasLtMatrixLayout_t a = nullptr, b = nullptr;
  cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 16, 8, 15);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 8, 16, 8);
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const auto heuristic = [&](cublasLtMatrixLayout_t d) {
    check_cublaslt(cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d, preference, 1, &result, &found), "x");
  };
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 16, 16, 16);
  CHECK_THROWS_WITH(heuristic(d), ContainsSubstring("a leading dimension is below the rows"));
  cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 16, 8, 16);
  CHECK_NOTHROW(heuristic(d));
  cublasLtMatrixLayoutCreate(&d, CUDA_R_16F, 16, 16, 16);
  CHECK_THROWS_WITH(heuristic(d), ContainsSubstring("combination of types"));
  cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 16, 15, 16);
  CHECK_THROWS_WITH(heuristic(d), ContainsSubstring("op(b) and d differ in columns"));
}

TEST_CASE("the mock refuses algorithms of other problems, refused ones and a workspace that is too small",
          "[cublaslt]") {
  using Catch::Matchers::ContainsSubstring;
  cublasLtHandle_t handle = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const auto square = [](std::uint64_t extent) {
    cublasLtMatrixLayout_t layout = nullptr;
    cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, extent, extent, static_cast<std::int64_t>(extent));
    return layout;
  };
  const auto small = square(8), large = square(16);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  const std::uint64_t room = 1 << 20;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room));
  const std::uint32_t alignment = 16;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment));
  }
  cublasLtMatmulHeuristicResult_t results[8] = {};
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle, operation, small, small, small, small, preference, 8, results, &found);
  REQUIRE(found == 5);  // the last one would add in place, which the product must not request
  Kokkos::View<float*, Kokkos::HostSpace> memory("memory", 4096);
  const auto run = [&](int algorithm, cublasLtMatrixLayout_t layout, std::size_t workspace) {
    const float one = 1.0F, zero = 0.0F;
    float* const at = memory.data();
    check_cublaslt(cublasLtMatmul(handle, operation, &one, at, layout, at + 512, layout, &zero, at + 1024, layout,
                                  at + 1024, layout, &results[algorithm].algo, at + 2048, workspace, nullptr),
                   "x");
  };
  CHECK_NOTHROW(run(2, small, 64));
  CHECK_THROWS_WITH(run(2, small, 4), ContainsSubstring("workspace is too small"));
  CHECK_THROWS_WITH(run(1, small, 64), ContainsSubstring("the heuristic refused this algorithm"));
  CHECK_THROWS_WITH(run(0, large, 64), ContainsSubstring("chosen for another problem"));
}

}  // namespace kozero::kernels
