// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_matmul_tiles.cpp: the tiled product at extents with several chunks, groups, passes and spans, with either side
// streaming, on every unit, against the unit that every processor has. The bits of an element depend only on its row
// and column, and are the same on all units of floats.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/ops/gelu.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

using reference::Filled;

struct Extents {
  std::int64_t m, n, k;
};

template <class In>
struct Operands {
  Extents of;
  std::vector<float> a, b, bias;
  Filled<In> stored_a, stored_b, stored_bias;

  explicit Operands(Extents extents)
      : of(extents),
        a(reference::numbers<In>(of.m * of.k, 1)),
        b(reference::numbers<In>(of.k * of.n, 2)),
        bias(reference::numbers<In>(of.n, 3)),
        stored_a(a),
        stored_b(b),
        stored_bias(bias) {}

  /// The product by `multiply(shape, c, a, b, epilogue)`. If it accumulates, it adds to c, which is 0.25, or with a
  /// bias to an addend.
  template <class Out, class Multiply>
  std::vector<float> by(const Multiply& multiply, Op op_a, Op op_b, bool adds, bool has_bias) const {
    const Filled<Out> c(std::vector<float>(static_cast<std::size_t>(of.m * of.n), 0.25F));
    const Filled<Out> addend(reference::numbers<Out>(of.m * of.n, 4));
    Epilogue<Out, In> epilogue;
    if (has_bias) epilogue.bias = stored_bias.input().data();
    if (has_bias && adds) epilogue.addend = addend.input().data();
    multiply(ProductShape{of.m, of.n, of.k, op_a, op_b, adds, has_bias}, c.vector().data(), stored_a.input().data(),
             stored_b.input().data(), epilogue);
    Device().fence();
    return c.values();
  }
};

auto by_unit(const TileUnit& unit) {
  return [&unit](const ProductShape& shape, auto* c, const auto* a, const auto* b, const auto& epilogue) {
    multiply_by_tiles(Device(), unit, shape, c, a, b, epilogue);
  };
}

/// The unit of lines that every processor has.
const TileUnit kBase = unit_of_floats("base", LineKind::base, base::product_of_floats);

template <class Out, class In>
void check(const TileUnit& unit, Extents extents) {
  const Operands<In> operands(extents);
  for (const Op op_a : {Op::none, Op::transpose}) {
    for (const Op op_b : {Op::none, Op::transpose}) {
      CAPTURE(unit.name, extents.m, extents.n, extents.k, op_a == Op::transpose, op_b == Op::transpose);
      for (const auto& [adds, biased] : {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
        const auto expected = operands.template by<Out>(by_unit(kBase), op_a, op_b, adds, biased);
        const auto got = operands.template by<Out>(by_unit(unit), op_a, op_b, adds, biased);
        // Both are rounded from sums that differ slightly.
        double largest = 0.0;
        for (const float value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
        const double rounding = std::is_same_v<Out, float> ? 0.0 : 2.0 * reference::kRounding<Out> * largest;
        reference::require_near(got, expected, rounding + 1e-6 + 2e-7 * static_cast<double>(extents.k));
      }
    }
  }
}

/// The unit with parts so small that small products have many of them.
TileUnit with_small_parts(TileUnit unit) {
  unit.pass_steps = 2;
  unit.group_blocks = 2;
  unit.sum_blocks = 4;
  return unit;
}

template <class Out, class In>
void check_on_all_units() {
  for (const TileUnit& unit : tile_units<In>()) {
    check<Out, In>(unit, {1100, 70, 530});   // left streams
    check<Out, In>(unit, {70, 1100, 530});   // right streams
    check<Out, In>(unit, {1100, 1060, 40});  // two groups, one pass
    check<Out, In>(unit, {31, 1, 3});
    check<Out, In>(with_small_parts(unit), {300, 170, 330});  // chunks, groups and passes
  }
}

/// A product whose packed shared side would exceed 4 MiB, so that k is cut into spans.
template <class Out, class In>
void check_spans() {
  const Operands<In> operands({70, 100, 24000});
  const auto expected = operands.template by<Out>(by_unit(kBase), Op::none, Op::none, true, true);
  for (const TileUnit& unit : tile_units<In>()) {
    CAPTURE(unit.name);
    const auto got = operands.template by<Out>(by_unit(unit), Op::none, Op::none, true, true);
    reference::require_near(got, expected, 5e-3);
    TileUnit narrow = unit;
    narrow.sum_blocks = 3;  // a chunk is then one block of several
    REQUIRE(operands.template by<Out>(by_unit(narrow), Op::none, Op::none, true, true) == got);
  }
}

/// The GELU after a product into float, and its gradient, against gelu.hpp.
void check_gelu(const TileUnit& unit, Extents extents) {
  CAPTURE(unit.name, extents.m, extents.n, extents.k);
  const Operands<Bfloat16> of(extents);
  const auto cells = static_cast<std::size_t>(extents.m * extents.n);
  const std::vector<float> empty(cells);
  const Filled<float> c(empty), active(empty), dc(empty), product(empty);
  // Both ends of the curve, which products do not reach.
  std::vector<float> states = reference::numbers<float>(extents.m * extents.n, 5);
  for (std::size_t i = 0; i < cells; ++i) states[i] *= i % 3 == 0 ? 8.0F : 1.0F;
  states[0] = -100.0F;
  states[1] = 100.0F;
  const Filled<float> hidden(states);
  const auto multiply = [&](const Filled<float>& to, const Epilogue<float, Bfloat16>& epilogue) {
    const ProductShape shape{extents.m, extents.n, extents.k, Op::none, Op::none, false, epilogue.bias != nullptr};
    multiply_by_tiles(Device(), unit, shape, to.vector().data(), of.stored_a.input().data(), of.stored_b.input().data(),
                      epilogue);
    Device().fence();
  };
  multiply(c, {.bias = of.stored_bias.input().data(), .active = active.vector().data()});
  multiply(product, {});
  multiply(dc, {.hidden = hidden.input().data()});
  std::vector<double> forward, backward;
  const auto values = c.values(), factors = product.values();
  for (std::size_t i = 0; i < cells; ++i) {
    forward.push_back(gelu(values[i]));
    backward.push_back(static_cast<double>(factors[i]) * gelu_slope(states[i]));
  }
  reference::require_near(active.values(), forward, 1e-5);
  reference::require_near(dc.values(), backward, 1e-4);
}

}  // namespace

TEST_CASE("The tiled product of floats agrees with the base's", "[matmul]") { check_on_all_units<float, float>(); }
TEST_CASE("The tiled product of bf16 agrees with the base's", "[matmul]") {
  SECTION("into float") { check_on_all_units<float, Bfloat16>(); }
  SECTION("into bf16") { check_on_all_units<Bfloat16, Bfloat16>(); }
}
TEST_CASE("The tiled product of fp16 agrees with the base's", "[matmul]") {
  SECTION("into float") { check_on_all_units<float, Float16>(); }
  SECTION("into fp16") { check_on_all_units<Float16, Float16>(); }
}

TEST_CASE("The tiled product of a long inner extent agrees with the base's", "[matmul]") {
  SECTION("of floats") { check_spans<float, float>(); }
  SECTION("of bf16") { check_spans<float, Bfloat16>(); }
}
TEST_CASE("A unit that overlaps stores a GELU beside its products", "[matmul]") {
  const TileUnit& unit = tile_units<Bfloat16>().front();
  if (!unit.overlaps) SKIP("this processor has no such unit");
  check_gelu(unit, {70, 100, 530});
  check_gelu(unit, {128, 64, 64});
  check_gelu(with_small_parts(unit), {300, 170, 330});
}

TEMPLATE_LIST_TEST_CASE("Bits of a tiled product depend on the row and the column alone", "[matmul]",
                        reference::StoredTypes) {
  const std::int64_t n = 200;
  const std::int64_t k = 2300;
  const Operands<TestType> many({1100, n, k});
  const auto rows = GENERATE(std::int64_t{33}, 9);
  const Operands<TestType> few({rows, n, k});  // its operand a has the first rows of the other's
  for (const TileUnit& unit : tile_units<TestType>()) {
    CAPTURE(unit.name);
    const auto of_many = many.template by<float>(by_unit(unit), Op::none, Op::none, false, false);
    const auto of_few = few.template by<float>(by_unit(unit), Op::none, Op::none, false, false);
    REQUIRE(reference::same_bits(of_few, {of_many.begin(), of_many.begin() + rows * n}));
  }
}

TEMPLATE_LIST_TEST_CASE("All units of floats with fused multiply-adds have the same bits", "[matmul]",
                        reference::StoredTypes) {
  std::vector<TileUnit> units;
  for (const TileUnit& unit : tile_units<TestType>()) {
    if (!unit.pairs) units.push_back(unit);
  }
  if (units.size() < 2) SKIP("this processor has one unit of floats");
  for (const Extents extents : {Extents{70, 129, 530}, Extents{33, 9, 1000}, Extents{300, 17, 64}}) {
    const Operands<TestType> of(extents);
    for (const Op op : {Op::none, Op::transpose}) {
      const auto by_first = of.template by<TestType>(by_unit(units[0]), op, op, true, true);
      for (const TileUnit& unit : units) {
        CAPTURE(unit.name, extents.m, extents.n, extents.k);
        REQUIRE(reference::same_bits(of.template by<TestType>(by_unit(unit), op, op, true, true), by_first));
      }
    }
  }
}

}  // namespace kozero::kernels
