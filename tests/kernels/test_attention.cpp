// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_attention.cpp: every algorithm for attention against plain loops in double, their gradient against differences.
// Shapes: odd heads and positions, several blocks, grouped queries, one key head for all, dropout, empty batches.
#include <catch2/generators/catch_generators.hpp>

#include "attention_case.hpp"

namespace kozero::kernels {
namespace {

using namespace attention_case;

TEST_CASE("the reference gradient of attention agrees with central differences", "[attention]") {
  const std::vector<std::uint64_t> ids{11, 4};
  AttentionShape shape = shape_of(2, 5, 4, 2, 3);
  const auto share = GENERATE(0.0F, 0.4F);
  shape.dropout = share;
  shape.sample_ids = ids.data();
  const CutDocuments documents(GENERATE(tests::DocumentLengths{}, tests::DocumentLengths{{1, 3, 1}, {2, 3}}));
  const Inputs<> in(shape);
  const std::vector<double> qkv = reference::in_double(in.qkv);
  const std::vector<double> gradient = plain_gradient(shape, qkv, in.dy, documents.starts());
  const auto loss = [&](const std::vector<double>& x) {
    return reference::weighted_sum(in.dy, plain_attention(shape, x, documents.starts()).y);
  };
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::abs(gradient[i] - reference::central_difference(loss, qkv, i)) < 1e-8);
  }
}

TEMPLATE_LIST_TEST_CASE("attention agrees with plain loops", "[attention]", reference::StoredTypes) {
  check<TestType>(shape_of(2, 7, 3, 3, 13));
  check<TestType>(shape_of(1, 1, 1, 1, 1));
  check<TestType>(shape_of(3, 33, 2, 2, 16));
}

TEMPLATE_LIST_TEST_CASE("attention agrees with plain loops over several strips and blocks", "[attention]",
                        reference::StoredTypes) {
  check<TestType>(shape_of(1, 31, 1, 1, 32));
  check<TestType>(shape_of(1, 32, 2, 1, 33));
  check<TestType>(shape_of(1, 64, 2, 2, 8));
  check<TestType>(shape_of(1, 65, 1, 1, 5));
  check<TestType>(shape_of(2, 131, 2, 2, 7));
  check<TestType>(shape_of(1, 100, 2, 2, 128));
  check<TestType>(shape_of(1, 256, 2, 1, 64));
  check<TestType>(shape_of(1, 70, 2, 1, 200));
}

TEST_CASE("the largest score of a query may be among any keys", "[attention]") {
  // The first element of the keys increases or decreases with the position, and that of the queries is 1. So exp() of
  // the difference of two blocks' scores is nearly 0 or very large.
  const auto slope = GENERATE(-0.1F, 0.1F);
  const AttentionShape shape = shape_of(1, 300, 1, 1, 4);
  Inputs<> in(shape);
  for (std::int64_t n = 0; n < shape.positions; ++n) {
    in.qkv[at(shape.query(n, 0))] = 1.0F;
    in.qkv[at(shape.key_of(n, 0))] = slope * static_cast<float>(n - 150);
  }
  check<float>(shape, in);
}

TEMPLATE_LIST_TEST_CASE("query heads share key heads", "[attention]", reference::StoredTypes) {
  check<TestType>(shape_of(2, 9, 4, 2, 5));
  check<TestType>(shape_of(2, 70, 6, 1, 3));
}

TEMPLATE_LIST_TEST_CASE("attention drops probabilities by the sample's own numbers", "[attention]",
                        reference::StoredTypes) {
  const std::vector<std::uint64_t> ids{7, 3, 7};
  AttentionShape shape = shape_of(3, 67, 4, 2, 5);
  shape.dropout = 0.3F;
  shape.key = 99;
  shape.sample_ids = ids.data();
  check<TestType>(shape, ids);

  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < 67; ++i) {
    for (std::int64_t j = 0; j < 67; ++j) {
      REQUIRE(shape.kept(0, 1, i, j) == shape.kept(2, 1, i, j));
      dropped += shape.kept(0, 1, i, j) == 0.0F ? 1 : 0;
    }
  }
  REQUIRE(std::abs(static_cast<double>(dropped) / (67.0 * 67.0) - 0.3) < 0.03);
}

TEMPLATE_LIST_TEST_CASE("attention of nothing does nothing", "[attention]", reference::StoredTypes) {
  check<TestType>(shape_of(0, 7, 2, 2, 5));
  check<TestType>(shape_of(2, 0, 2, 2, 5));
}

TEST_CASE("large scores stay finite", "[attention]") {
  const AttentionShape shape = shape_of(1, 20, 1, 1, 4);
  Inputs<> in(shape);
  for (float& x : in.qkv) x *= 100.0F;
  for (const Algorithm<float>& algorithm : algorithms<float>()) {
    const Results got = run<float>(Device(), algorithm, shape, in.qkv, in.dy);
    for (const float x : got.y) REQUIRE(std::isfinite(x));
    for (const float x : got.dqkv) REQUIRE(std::isfinite(x));
  }
}

TEMPLATE_LIST_TEST_CASE("attention repeats bit for bit", "[attention]", reference::StoredTypes) {
  const AttentionShape shape = shape_of(3, 150, 4, 2, 16);
  const Inputs<> in(shape);
  for (const Algorithm<TestType>& algorithm : algorithms<TestType>()) {
    const Results first = run<TestType>(Device(), algorithm, shape, in.qkv, in.dy);
    const Results second = run<TestType>(Device(), algorithm, shape, in.qkv, in.dy);
    REQUIRE(reference::same_bits(first.y, second.y));
    REQUIRE(reference::same_bits(first.logsumexp, second.logsumexp));
    REQUIRE(reference::same_bits(first.dqkv, second.dqkv));
  }
}

#if defined(KOKKOS_ENABLE_OPENMP) && !defined(KOKKOS_ENABLE_CUDA)
TEMPLATE_LIST_TEST_CASE("attention has the same bits on one thread and on all", "[attention]", reference::StoredTypes) {
  const std::int64_t batch = GENERATE(1, 3);  // one sequence has fewer key heads than there should be tasks
  const AttentionShape shape = shape_of(batch, 150, 4, 2, 16);
  require_same_bits_on_one_thread<TestType>(shape, Inputs<>(shape));
}
#endif

TEST_CASE("attention refuses arrays of other extents", "[attention]") {
  const Filled<float> x(1000);
  const AttentionShape shape = shape_of(1, 4, 2, 2, 3);
  REQUIRE_THROWS(attention_forward(Device(), x.matrix(4, 7), x.matrix(2, 4), x.input(4, 18), shape, x.vector()));
  REQUIRE_THROWS(
      attention_forward(Device(), x.matrix(4, 6), x.matrix(2, 4), x.input(4, 18), shape_of(1, 4, 3, 2, 3), x.vector()));
}

}  // namespace
}  // namespace kozero::kernels
