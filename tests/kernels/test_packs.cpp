// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_packs.cpp: the functions of a GPU's lanes, called by one thread for one lane after the other, against plain
// loops: for arrays aligned to 16 bytes (a pack in one access) and for other arrays (element by element).
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/row_blocks.hpp"
#include "kernels/launch/update_elements.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

constexpr std::int64_t kExtents[] = {0, 1, 3, 4, 7, 8, 9, 31, 33, 255, 256, 257, 768, 2100};
constexpr std::int64_t kShifts[] = {0, 1, 8};  ///< elements after an aligned address; 8 is aligned for any type

/// Numbers in memory that begins `shift` elements after an aligned address.
template <class T>
struct Shifted {
  std::vector<T> memory;
  T* first;

  Shifted(const std::vector<float>& values, std::int64_t shift) : memory(values.size() + 32) {
    std::size_t skipped = 0;
    while (!is_aligned(memory.data() + skipped)) ++skipped;
    first = memory.data() + skipped + shift;
    for (std::size_t i = 0; i < values.size(); ++i) first[i] = static_cast<T>(values[i]);
  }
  [[nodiscard]] std::vector<float> values(std::int64_t extent) const {
    std::vector<float> floats;
    for (std::int64_t i = 0; i < extent; ++i) floats.push_back(static_cast<float>(first[i]));
    return floats;
  }
};

/// The fold of f over all lanes' shares.
template <class Fold, class F, class... In>
float folded_by_lanes(std::int64_t columns, std::int64_t lanes, const F& f, const In*... in) {
  float result = Fold::kOfNone;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    result = Fold::of(result, fold_share<Fold>(columns, lane, lanes, f, in...));
  }
  return result;
}

TEMPLATE_LIST_TEST_CASE("the lanes' sums are a row's, aligned or not", "", reference::StoredTypes) {
  const auto product = [](float a, float b) { return a * b; };
  for (const std::int64_t columns : kExtents) {
    const std::vector<float> a = reference::numbers<TestType>(columns, 1), b = reference::numbers(columns, 2);
    double expected = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) expected += static_cast<double>(a[i]) * b[i];
    for (const std::int64_t lanes : {1, 32, 256}) {
      for (const std::int64_t shift : kShifts) {
        const Shifted<TestType> first(a, shift);
        const Shifted<float> second(b, 0);
        const float sum = folded_by_lanes<Added>(columns, lanes, product, first.first, second.first);
        CHECK(std::abs(static_cast<double>(sum) - expected) <= 1e-5 * std::sqrt(static_cast<double>(columns + 1)));
      }
    }
  }
}

TEST_CASE("a sum's order is the same aligned or not") {
  const auto itself = [](float x) { return x; };
  const std::vector<float> values = reference::numbers(2100, 5);
  const Shifted<float> aligned(values, 0), unaligned(values, 1);
  for (const std::int64_t columns : kExtents) {
    CHECK(folded_by_lanes<Added>(columns, 32, itself, aligned.first) ==
          folded_by_lanes<Added>(columns, 32, itself, unaligned.first));
  }
}

TEST_CASE("the lanes' largest is a row's, wherever it lies, and passes over a NaN") {
  const auto itself = [](float x) { return x; };
  for (const std::int64_t columns : {1, 8, 33, 300, 2100}) {
    for (std::int64_t at = 0; at < columns; at += 1 + columns / 40) {
      std::vector<float> values = reference::numbers(columns, 3);
      if (columns > 1) values[static_cast<std::size_t>((at + 1) % columns)] = std::nanf("");
      values[static_cast<std::size_t>(at)] = 1.5F;
      const Shifted<float> row(values, 0);
      CHECK(folded_by_lanes<Largest>(columns, 32, itself, row.first) == 1.5F);
    }
  }
  CHECK(folded_by_lanes<Largest>(0, 32, itself, static_cast<const float*>(nullptr)) == Largest::kOfNone);
}

TEMPLATE_LIST_TEST_CASE("every column is assigned once, in place too, and nothing behind the row", "",
                        reference::StoredTypes) {
  const auto term = [](Column c, float a, float b) { return a + 0.5F * b + static_cast<float>(c.index % 3); };
  for (const std::int64_t columns : kExtents) {
    const std::vector<float> a = reference::numbers<TestType>(columns + 1, 1), b = reference::numbers(columns, 2);
    std::vector<float> expected;
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<std::size_t>(c);
      expected.push_back(term(Column{c}, a[i], b[i]));
    }
    expected = reference::stored_as<TestType>(std::move(expected));
    expected.push_back(a.back());
    for (const std::int64_t shift : kShifts) {
      const Shifted<TestType> row(a, shift);
      const Shifted<float> other(b, shift);
      for (std::int64_t lane = 0; lane < 32; ++lane) {
        assign_share(row.first, columns, lane, 32, term, row.first, other.first);
      }
      CHECK(reference::same_bits(row.values(columns + 1), expected));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a GPU's threads assign every element of an array once", "", reference::StoredTypes) {
  const auto difference = [](float a, float b) { return a - b; };
  using Assigned = Assignment<TestType, TestType, 2, decltype(difference)>;
  for (const std::int64_t extent : kExtents) {
    const std::vector<float> a = reference::numbers<TestType>(extent + 1, 1),
                             b = reference::numbers<TestType>(extent, 2);
    std::vector<float> expected = a;
    for (std::size_t i = 0; i < b.size(); ++i) expected[i] = a[i] - b[i];
    expected = reference::stored_as<TestType>(std::move(expected));
    for (const std::int64_t shift : kShifts) {
      const Shifted<TestType> out(a, shift), other(b, shift);
      const Assigned assigned{out.first, {out.first, other.first}, difference, extent};
      for (std::int64_t pack = 0; pack * Assigned::kCount < extent; ++pack) {
        assigned.assign_pack(pack, std::make_integer_sequence<int, 2>());
      }
      CHECK(reference::same_bits(out.values(extent + 1), expected));
    }
  }
}

/// sums[k * columns + c] over rows [3, 3 + count): of x, and of n x.
template <class T>
std::vector<float> sums_down(const WholeRows<T>& x, std::int64_t count, std::int64_t columns, std::int64_t first) {
  const auto terms = [](std::int64_t n, float v) { return RowTerms<2>{v, static_cast<float>(n) * v}; };
  const RowSums<2, WholeRows<T>, 1, decltype(terms)> sums{{{x}, 100}, terms, {3, 3 + count}, first};
  const Shifted<float> out(std::vector<float>(static_cast<std::size_t>(2 * columns), -1.0F), 0);
  std::int64_t c = 0;
  for (; x.packed() && c + kPackOf<T> <= columns; c += kPackOf<T>) {
    sums.template go_down<kPackOf<T>>(out.first, columns, c);
  }
  for (; c < columns; ++c) sums.template go_down<1>(out.first, columns, c);
  return out.values(2 * columns);
}

TEMPLATE_TEST_CASE("a GPU's lane adds every row of its columns once, in order", "", float, Bfloat16) {
  constexpr std::int64_t kFirst = 8;
  for (const std::int64_t columns : {8, 24, 11}) {
    const std::int64_t stride = columns + kFirst;
    const std::vector<float> values = reference::numbers<TestType>(100 * stride, 4);
    const Shifted<TestType> x(values, 0);
    for (const std::int64_t rows : {0, 1, 7, 60}) {
      std::vector<float> expected(static_cast<std::size_t>(2 * columns), 0.0F);
      for (std::int64_t n = 3; n < 3 + rows; ++n) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const float v = values[static_cast<std::size_t>(n * stride + kFirst + c)];
          expected[static_cast<std::size_t>(c)] += v;
          expected[static_cast<std::size_t>(columns + c)] += static_cast<float>(n) * v;
        }
      }
      reference::require_near(sums_down(WholeRows<TestType>{x.first, stride}, rows, columns, kFirst), expected, 1e-3);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a GPU's threads add every element to a sum once", "", reference::StoredTypes) {
  for (const std::int64_t extent : kExtents) {
    const std::vector<float> values = reference::numbers<TestType>(extent, 6);
    double expected = 0.0;
    for (const float value : values) expected += static_cast<double>(value) * value;
    for (const std::int64_t shift : kShifts) {
      const Shifted<TestType> x(values, shift);
      for (const std::int64_t threads : {1, 13, 1000}) {
        double sum = 0.0;
        const StridedSum<Square, TestType> of_squares{x.first, extent, threads};
        for (std::int64_t thread = 0; thread < threads; ++thread) of_squares(thread, sum);
        CHECK(std::abs(sum - expected) <= 1e-12 * static_cast<double>(extent));
      }
    }
  }
}

/// out += the partials (count, columns), in the order of a GPU's team.
void add_partials_by_team(Vector<float> out, Matrix<float> partials) {
  const auto columns = static_cast<std::int64_t>(partials.extent(1));
  const Partials all{partials.data(), static_cast<std::int64_t>(partials.extent(0)), columns};
  for_each_long_row(
      Device(), "test::partials", 1, KOKKOS_LAMBDA(const WholeTeam<RowTeam<Device>>& team, std::int64_t) {
        add_shares(team, out.data(), all, columns);
      });
  Device().fence();
}

TEST_CASE("a GPU's team adds every partial sum once") {
  constexpr std::int64_t kColumns = 19;
  for (const std::int64_t count : {1, 2, 7, 8, 9, 100, 512}) {
    const std::vector<float> sums = reference::numbers(count * kColumns, 7);
    std::vector<double> expected(kColumns, 2.0);
    for (std::size_t i = 0; i < sums.size(); ++i) expected[i % kColumns] += sums[i];
    const reference::Filled<float> out(std::vector<float>(kColumns, 2.0F)), partials(sums);
    add_partials_by_team(out.vector(), partials.matrix(count, kColumns));
    reference::require_near(out.values(), expected, 1e-4);
  }
}

TEST_CASE("rows that lie in parts of longer ones are found") {
  const std::vector<float> memory(64);
  const PartsOfRows<float> heads{memory.data() + 4, 20, 3, 4};
  CHECK(heads.at(0) == memory.data() + 4);
  CHECK(heads.at(2) == memory.data() + 12);
  CHECK(heads.at(4) == memory.data() + 28);
}

/// A weight that decays is halved before the gradient is added; the state counts updates.
struct Rule {
  KOKKOS_FUNCTION Element<2> operator()(const Element<2>& element, float slope, bool decays) const {
    return {(decays ? 0.5F : 1.0F) * element[0] + slope, element[1] + 1.0F};
  }
};

TEMPLATE_LIST_TEST_CASE("a GPU's threads update what a host's do, whatever runs a pack meets", "",
                        reference::StoredTypes) {
  constexpr std::int64_t kExtent = 133;
  UpdateRuns runs;
  runs.add(40, true);
  runs.add(43, false);
  runs.add(96, true);
  runs.add(112, false);
  runs.add(kExtent, true);
  for (const bool packed : {true, false}) {
    const std::vector<float> weights = reference::numbers(kExtent, 1), slopes = reference::numbers(kExtent, 2);
    const Shifted<float> of_gpu(weights, 0), of_host(weights, 0), gradient(slopes, 0);
    const Shifted<float> state_of_gpu(std::vector<float>(kExtent), 0), state_of_host(std::vector<float>(kExtent), 0);
    const Shifted<TestType> stored_of_gpu(weights, 0), stored_of_host(weights, 0);
    using Update = ElementUpdate<TestType, 2, Rule>;
    const Update gpu{runs,  stored_of_gpu.first, {of_gpu.first, state_of_gpu.first}, gradient.first, Rule(), kExtent,
                     packed};
    const Update host{
        runs, stored_of_host.first, {of_host.first, state_of_host.first}, gradient.first, Rule(), kExtent, packed};
    for (std::int64_t pack = 0; pack * Update::kCount < kExtent; ++pack) gpu.update_part(pack);
    host.update_block(0);
    CHECK(reference::same_bits(of_gpu.values(kExtent), of_host.values(kExtent)));
    CHECK(reference::same_bits(state_of_gpu.values(kExtent), state_of_host.values(kExtent)));
    CHECK(reference::same_bits(stored_of_gpu.values(kExtent), stored_of_host.values(kExtent)));
    for (std::size_t i = 0; i < kExtent; ++i) {
      const bool decays = i < 40 || (i >= 43 && i < 96) || i >= 112;
      REQUIRE(of_gpu.values(kExtent)[i] == (decays ? 0.5F : 1.0F) * weights[i] + slopes[i]);
      REQUIRE(state_of_gpu.values(kExtent)[i] == 1.0F);
    }
  }
}

}  // namespace
}  // namespace kozero::kernels
