// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_matmul_tiles.cpp: the tiled product at extents with several chunks, groups, passes and spans, with either side
// streaming, on every unit. The bits of an element depend only on its row and column.
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

const auto by_library_alone = [](const ProductShape& shape, auto* c, const auto* a, const auto* b,
                                 const auto& epilogue) { multiply_by_library(Device(), shape, c, a, b, epilogue); };

auto by_unit(const TileUnit& unit) {
  return [&unit](const ProductShape& shape, auto* c, const auto* a, const auto* b, const auto& epilogue) {
    multiply_by_tiles(Device(), unit, shape, c, a, b, epilogue);
  };
}

template <class Out, class In>
void check(const TileUnit& unit, Extents extents) {
  const Operands<In> operands(extents);
  for (const Op op_a : {Op::none, Op::transpose}) {
    for (const Op op_b : {Op::none, Op::transpose}) {
      CAPTURE(unit.name, extents.m, extents.n, extents.k, op_a == Op::transpose, op_b == Op::transpose);
      for (const auto& [adds, biased] : {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
        const auto expected = operands.template by<Out>(by_library_alone, op_a, op_b, adds, biased);
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
  const TileUnits& units = tile_units<In>();
  if (units.extent == 0) SKIP("this processor has no tile unit for the type");
  for (int i = 0; i < units.extent; ++i) {
    check<Out, In>(units.unit[i], {1100, 70, 530});   // left streams
    check<Out, In>(units.unit[i], {70, 1100, 530});   // right streams
    check<Out, In>(units.unit[i], {1100, 1060, 40});  // two groups, one pass
    check<Out, In>(units.unit[i], {31, 1, 3});
    check<Out, In>(with_small_parts(units.unit[i]), {300, 170, 330});  // chunks, groups and passes
  }
}

/// A product whose packed shared side would exceed 4 MiB, so that k is cut into spans.
template <class Out, class In>
void check_spans() {
  const TileUnits& units = tile_units<In>();
  if (units.extent == 0) SKIP("this processor has no tile unit for the type");
  const Operands<In> operands({70, 100, 24000});
  const auto expected = operands.template by<Out>(by_library_alone, Op::none, Op::none, true, true);
  for (int i = 0; i < units.extent; ++i) {
    CAPTURE(units.unit[i].name);
    const auto got = operands.template by<Out>(by_unit(units.unit[i]), Op::none, Op::none, true, true);
    reference::require_near(got, expected, 5e-3);
    TileUnit narrow = units.unit[i];
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

TEST_CASE("The tiled product of floats agrees with the library's", "[matmul]") { check_on_all_units<float, float>(); }
TEST_CASE("The tiled product of bf16 agrees with the library's", "[matmul]") {
  SECTION("into float") { check_on_all_units<float, Bfloat16>(); }
  SECTION("into bf16") { check_on_all_units<Bfloat16, Bfloat16>(); }
}
TEST_CASE("The tiled product of fp16 agrees with the library's of copies in float", "[matmul]") {
  SECTION("into float") { check_on_all_units<float, Float16>(); }
  SECTION("into fp16") { check_on_all_units<Float16, Float16>(); }
}

TEST_CASE("The tiled product of a long inner extent agrees with the library's", "[matmul]") {
  SECTION("of floats") { check_spans<float, float>(); }
  SECTION("of bf16") { check_spans<float, Bfloat16>(); }
}
TEST_CASE("A unit that overlaps stores a GELU beside its products", "[matmul]") {
  const TileUnits& units = tile_units<Bfloat16>();
  if (units.extent == 0 || !units.unit[0].overlaps) SKIP("this processor has no such unit");
  check_gelu(units.unit[0], {70, 100, 530});
  check_gelu(units.unit[0], {128, 64, 64});
  check_gelu(with_small_parts(units.unit[0]), {300, 170, 330});
}

TEMPLATE_LIST_TEST_CASE("Bits of a tiled product depend on the row and the column alone", "[matmul]",
                        reference::StoredTypes) {
  const TileUnits& units = tile_units<TestType>();
  if (units.extent == 0) SKIP("this processor has no tile unit for the type");
  const std::int64_t n = 200;
  const std::int64_t k = 2300;
  const Operands<TestType> many({1100, n, k});
  const Operands<TestType> few({33, n, k});  // its operand a has the first rows of the other's
  const auto multiply = by_unit(units.unit[0]);
  const auto of_many = many.template by<float>(multiply, Op::none, Op::none, false, false);
  const auto of_few = few.template by<float>(multiply, Op::none, Op::none, false, false);
  REQUIRE(reference::same_bits(of_few, {of_many.begin(), of_many.begin() + 33 * n}));
}

}  // namespace kozero::kernels
