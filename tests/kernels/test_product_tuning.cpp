// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_product_tuning.cpp: every algorithm for a product agrees with a plain loop, products use the table of
// algorithms, and tuning keeps the fastest algorithm.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <string_view>

#include "kernels/matmul/product_tuning.hpp"

#include "gradient_case.hpp"

namespace kozero::kernels {
namespace {

using Catch::Matchers::ContainsSubstring;

/// During its lifetime products use these algorithms.
struct Table {
  explicit Table(const ProductAlgorithms& algorithms) { use_product_algorithms(algorithms, "x.toml"); }
  ~Table() { use_product_algorithms({}); }
};

template <class Held>
std::vector<TunedProduct> tuned(const Case<Held>& of) {
  begin_product_tuning(1);
  check(of);
  return end_product_tuning();
}

/// Launches of the tiled product since begin_counting().
int tiled_launches = 0;

void begin_counting() {
  tiled_launches = 0;
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback([](const char* name, std::uint32_t, std::uint64_t*) {
    tiled_launches += std::string_view(name) == "kozero::matmul::tiles" ? 1 : 0;
  });
}

void end_counting() { Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr); }

void wait(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) continue;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("every algorithm of a kind agrees with a plain loop, and so do products that are being tuned",
                        "[tuning]", ProductTypes) {
  for (const auto& of :
       {Case<TestType>{64, 40, 72, Op::none, Op::transpose}, Case<TestType>{70, 129, 65, Op::transpose, Op::none},
        Case<TestType>{9, 13, 5, Op::none, Op::none}}) {
    const auto products = tuned(of);
    const bool bias_is_addend = !runs_on_host<Device> && !std::is_same_v<typename TestType::Out, typename TestType::In>;
    CHECK(products.size() == (bias_is_addend ? 2 : 3));  // plain, added, biased
    std::size_t most = 0;
    for (const auto& product : products) most = std::max(most, product.algorithms.size());
    CHECK(most > 0);
    for (std::size_t index = 0; index < most; ++index) {
      ProductAlgorithms algorithms;
      for (const auto& product : products)
        algorithms[product.kind] = product.algorithms[std::min(index, product.algorithms.size() - 1)];
      const Table table(algorithms);
      check(of);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a product through a GELU is right while it is being tuned", "[tuning]",
                        reference::StoredTypes) {
  const std::int64_t m = 64, n = 72, k = 40;
  const Filled<TestType> a(reference::numbers<TestType>(m * k, 1));
  const Filled<TestType> b(reference::numbers<TestType>(k * n, 2));
  const Filled<TestType> bias(reference::numbers<TestType>(n, 4));
  const auto product = [&](const Filled<TestType>& hidden, const Filled<TestType>& active) {
    matmul_gelu<Device, TestType>(Device(), hidden.matrix(m, n), active.matrix(m, n), a.input(m, k), Op::none,
                                  b.input(k, n), bias.input());
    Device().fence();
  };
  const Filled<TestType> hidden(m * n), active(m * n), by_rule_hidden(m * n), by_rule_active(m * n);
  product(by_rule_hidden, by_rule_active);
  begin_product_tuning(1);
  product(hidden, active);
  CHECK(end_product_tuning().size() == 1);
  const double tolerance = std::is_same_v<TestType, float> ? 1e-5 : 4.0 * reference::kRounding<TestType>;
  reference::require_near(hidden.values(), by_rule_hidden.values(), tolerance);
  reference::require_near(active.values(), by_rule_active.values(), tolerance);
}

TEMPLATE_LIST_TEST_CASE(
    "the gradients of a weight and its bias are right by every algorithm, and while they are being tuned", "[tuning]",
    reference::StoredTypes) {
  const GradientCase<TestType> of{64, 72, 40, GENERATE(Operand::a, Operand::b), GENERATE(false, true)};
  begin_product_tuning(1);
  check_gradients(of);
  const auto products = end_product_tuning();
  CHECK_FALSE(products.empty());
  for (const auto& product : products) {
    for (const auto& algorithm : product.algorithms) {
      const Table table(ProductAlgorithms{{product.kind, algorithm}});
      check_gradients(of);
    }
  }
}

TEST_CASE("a kind's name says all that a product is", "[tuning]") {
  const ProductShape shape{7, 13, 5, Op::none, Op::transpose, false, true};
  CHECK(kind_name<Bfloat16, Bfloat16>(shape) == "bf16 = bf16 x bf16, 7 x 13 x 5, none transpose, bias");
  CHECK(kind_name<float, Float16>({7, 13, 5, Op::transpose, Op::none, true, false}) ==
        "f32 += fp16 x fp16, 7 x 13 x 5, transpose none");
}

TEST_CASE("products go by the table, others of other kinds by the rule, all by the rule again without one",
          "[tuning]") {
  const Case<> of{64, 64, 32, Op::none, Op::none};
  const auto products = tuned(of);
  const TunedProduct& plain = products.front();
  if (!runs_on_host<Device> || plain.algorithms.size() == 1) return;
  const auto launches = [](const Case<>& one) {
    begin_counting();
    product_of(one, false);
    end_counting();
    return tiled_launches;
  };
  CHECK(launches(of) > 0);
  for (const auto& algorithm : plain.algorithms) {
    const Table table(ProductAlgorithms{{plain.kind, algorithm}});
    CHECK(launches(of) > 0);
    CHECK(launches({96, 64, 32, Op::none, Op::none}) > 0);
  }
  CHECK(launches(of) > 0);
}

TEST_CASE("an algorithm that is not here is refused, with the file, the kind and what there is", "[tuning]") {
  const Case<> of{9, 13, 5, Op::none, Op::none};
  const auto refused = [&](const std::string& algorithm) {
    const Table table(ProductAlgorithms{{"f32 = f32 x f32, 9 x 13 x 5, none none", algorithm}});
    product_of(of, false);
  };
  const std::string expected =
      "x.toml: \"f32 = f32 x f32, 9 x 13 x 5, none none\" = \"abacus\": there is no such algorithm here";
  CHECK_THROWS_WITH(refused("abacus"), ContainsSubstring(expected) && ContainsSubstring("accepted are \""));
  const auto known = known_product_algorithms();
  if (std::find(known.begin(), known.end(), "AVX-512 BF16") != known.end()) {
    CHECK_THROWS_WITH(refused("AVX-512 BF16"), ContainsSubstring("\"AVX-512 BF16\": there is no such algorithm here"));
  }
}

TEST_CASE("tuning passes over an algorithm that is refused when it runs, but not over the rule's own", "[tuning]") {
  const std::vector<std::string> algorithms = {"rule", "refused", "fast"};
  const auto multiply = [](std::size_t refused) {
    return [refused](std::size_t algorithm) {
      if (algorithm == refused) throw Error(Failure::internal, "cublasLtMatmul: not supported");
      wait(algorithm == 0 ? 5e-2 : 1e-4);  // very different times, since other programs may interrupt
    };
  };
  begin_product_tuning(1);
  CHECK(fastest_algorithm("a", algorithms, multiply(1)) == 2);
  CHECK_THROWS_WITH(fastest_algorithm("b", algorithms, multiply(0)), ContainsSubstring("not supported"));
  const auto products = end_product_tuning();
  REQUIRE(products.size() == 1);
  CHECK(std::isinf(products[0].seconds[1]));
}

TEST_CASE("tuning keeps the fastest algorithm, the rule's own where none is faster by more than noise", "[tuning]") {
  CHECK(kept_of({1.0, 0.98, 0.99}) == 0);
  CHECK(kept_of({1.0, 0.96, 0.95, 2.0}) == 2);
  CHECK(kept_of({1.0}) == 0);

  const std::vector<std::string> algorithms = {"rule", "fast", "slow"};
  const std::vector<double> seconds = {2e-3, 2e-4, 4e-3};
  begin_product_tuning(3);
  for (int i = 0; i < 4; ++i)
    CHECK(fastest_algorithm("a", algorithms, [&](std::size_t algorithm) { wait(seconds[algorithm]); }) == 1);
  CHECK(fastest_algorithm("b", algorithms, [&](std::size_t algorithm) { wait(algorithm == 0 ? 1e-4 : 1e-3); }) == 0);
  const auto products = end_product_tuning();
  CHECK_FALSE(tuning_products());
  REQUIRE(products.size() == 2);
  CHECK(products[0].calls == 4);
  CHECK(products[1].calls == 1);
  for (std::size_t algorithm = 0; algorithm < algorithms.size(); ++algorithm) {
    CHECK(products[0].seconds[algorithm] >= seconds[algorithm]);
    CHECK(products[0].seconds[algorithm] < 10.0 * seconds[algorithm]);
  }
}

}  // namespace kozero::kernels
