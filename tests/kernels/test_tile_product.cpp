// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_tile_product.cpp: packed blocks element by element; every tile unit of this processor against double; the order
// of AMX's instructions, on tiles emulated in plain C++, which any processor can run.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/matmul/host/matmul_host.hpp"
#include "kernels/matmul/host/tile_packing.hpp"
#include "kernels/matmul/host/tile_product.hpp"
#include "kernels/matmul/host/tile_product_amx.hpp"
#include "kernels/matmul/host/tile_units.hpp"
#include "kernels/matmul/matmul.hpp"

#include "reference.hpp"

namespace kozero::kernels {
namespace {

/// An array that begins on a cache line.
template <class T>
class Lines {
 public:
  explicit Lines(std::int64_t extent, T filled = T())
      : memory_(static_cast<T*>(std::aligned_alloc(64, static_cast<std::size_t>(extent) * sizeof(T)))) {
    std::fill_n(memory_.get(), extent, filled);
  }
  [[nodiscard]] T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> memory_;
};

/// A matrix (rows, k), stored with k along its rows or across them, inside a larger array.
template <class T>
struct Stored {
  std::int64_t rows, k;
  bool k_across;
  std::vector<float> numbers;
  std::vector<T> memory;

  Stored(std::int64_t rows_, std::int64_t k_, bool k_across_, std::uint64_t seed)
      : rows(rows_), k(k_), k_across(k_across_), numbers(reference::numbers<T>(rows_ * k_, seed)) {
    memory.assign(static_cast<std::size_t>(stride() * (k_across ? k : rows)), T(1e9F));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t p = 0; p < k; ++p) {
        memory[static_cast<std::size_t>(k_across ? p * stride() + r : r * stride() + p)] = T(at(r, p));
      }
    }
  }
  [[nodiscard]] std::int64_t stride() const { return (k_across ? rows : k) + 3; }
  [[nodiscard]] TileSource<T> source() const { return {memory.data(), rows, k, stride(), k_across}; }
  /// Element (r, p), zero outside.
  [[nodiscard]] float at(std::int64_t r, std::int64_t p) const {
    return r < rows && p < k ? numbers[static_cast<std::size_t>(r * k + p)] : 0.0F;
  }
};

/// The position of element (r, p) in a block of words, by the header's description.
template <class Word>
std::int64_t packed_index(TileSide side, std::int64_t r, std::int64_t p) {
  constexpr std::int64_t kPerWord = kStepExtent<Word> / kStepWords;
  const std::int64_t step = p / kStepExtent<Word>;
  const std::int64_t word = p % kStepExtent<Word> / kPerWord;
  const std::int64_t in_step = side == TileSide::left ? r * kStepWords + word : word * kTileRows + r;
  return step * kStepElements<Word> + in_step * kPerWord + (kPerWord - 1 - p % kPerWord);
}

template <class Word, class T>
void check_packing(LineKind lines, TileSide side, const Stored<T>& matrix, std::int64_t first_row, std::int64_t first_k,
                   std::int64_t steps) {
  CAPTURE(side == TileSide::left, matrix.k_across, matrix.rows, matrix.k, first_row, first_k, steps);
  const Lines<Word> block(steps * kStepElements<Word>, Word(7.0F));
  pack_block(lines, block.data(), side, matrix.source(), first_row, first_k, {steps});
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    for (std::int64_t p = 0; p < steps * kStepExtent<Word>; ++p) {
      const auto got = static_cast<float>(block.data()[packed_index<Word>(side, r, p)]);
      if (got == matrix.at(first_row + r, first_k + p)) continue;
      CAPTURE(r, p, got);
      FAIL("a packed element differs");
    }
  }
}

/// Two matrices, packed for `steps` from k = 0, and their product in double.
template <class Word, class T = Word>
struct Operands {
  Stored<T> a, b;
  std::int64_t steps;
  Lines<Word> left, right;

  Operands(LineKind lines, std::int64_t rows, std::int64_t columns, std::int64_t k)
      : a(rows, k, false, 1),
        b(columns, k, true, 2),
        steps(steps_of<Word>(k)),
        left(steps * kStepElements<Word>),
        right(steps * kStepElements<Word>) {
    pack_block(lines, left.data(), TileSide::left, a.source(), 0, 0, {steps});
    pack_block(lines, right.data(), TileSide::right, b.source(), 0, 0, {steps});
  }
  /// The product, added to `c`.
  [[nodiscard]] std::vector<double> product_added_to(std::vector<double> c) const {
    for (std::int64_t i = 0; i < kTileElements; ++i) {
      for (std::int64_t p = 0; p < a.k; ++p) {
        c[static_cast<std::size_t>(i)] +=
            static_cast<double>(a.at(i / kTileRows, p)) * static_cast<double>(b.at(i % kTileRows, p));
      }
    }
    return c;
  }
};

/// The part of c that exists.
template <class Number>
std::vector<Number> existing(const std::vector<Number>& c, std::int64_t rows, std::int64_t columns) {
  std::vector<Number> all;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = c.begin() + r * kTileRows;
    all.insert(all.end(), row, row + columns);
  }
  return all;
}

template <class Word, class T, class Product>
void check_product(LineKind lines, std::int64_t rows, std::int64_t columns, std::int64_t k, const Product& multiply) {
  CAPTURE(rows, columns, k);
  const Operands<Word, T> of(lines, rows, columns, k);
  const Lines<float> c(kTileElements);
  const std::vector<float> before = reference::numbers(kTileElements, 9);
  std::copy(before.begin(), before.end(), c.data());
  for (const bool adds : {true, false}) {
    TileProduct product{c.data(), adds ? c.data() : nullptr, of.left.data(), of.right.data(), of.steps};
    product.rows = rows;
    product.columns = columns;
    multiply(product);
    const std::vector<double> start = adds ? reference::in_double(before) : std::vector<double>(kTileElements);
    reference::require_near(existing(std::vector<float>(c.data(), c.data() + kTileElements), rows, columns),
                            existing(of.product_added_to(start), rows, columns), 1e-6 * static_cast<double>(k));
  }
}

/// Calls check(unit, word) for each unit of the processor for T.
template <class T, class Check>
void on_all_units(const Check& check) {
  for (const TileUnit& unit : tile_units<T>()) {
    CAPTURE(unit.name);
    with_word<T>(unit, [&](auto word) { check(unit, word); });
  }
}

/// AMX's eight tiles of 16 rows of 64 bytes, as its manual describes loading, storing and multiplying.
class PlainTiles {
 public:
  template <int tile>
  void zero() {
    tiles_[tile].fill(0);
  }
  template <int tile>
  void load(const void* from, std::int64_t row_bytes) {
    for (std::size_t r = 0; r < 16; ++r) {
      std::memcpy(&tiles_[tile][16 * r], static_cast<const char*>(from) + static_cast<std::int64_t>(r) * row_bytes, 64);
    }
  }
  template <int tile>
  void load_once(const void* from, std::int64_t row_bytes) {
    load<tile>(from, row_bytes);
  }
  template <int tile>
  void store(void* to, std::int64_t row_bytes) {
    for (std::size_t r = 0; r < 16; ++r) {
      std::memcpy(static_cast<char*>(to) + static_cast<std::int64_t>(r) * row_bytes, &tiles_[tile][16 * r], 64);
    }
  }
  /// c(m, n) += sum of left(m, 2k) right(k, 2n) + sum of left(m, 2k + 1) right(k, 2n + 1), in pairs of bf16. Denormal
  /// numbers are zero, before and after each addition.
  template <int c, int left, int right>
  void multiply() {
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        float even = 0.0F;
        float odd = 0.0F;
        for (std::size_t k = 0; k < 16; ++k) {
          const std::uint32_t x = tiles_[left][16 * m + k];
          const std::uint32_t y = tiles_[right][16 * k + n];
          even = flushed(std::fma(lower(x), lower(y), even));
          odd = flushed(std::fma(upper(x), upper(y), odd));
        }
        const float sum = flushed(Kokkos::bit_cast<float>(tiles_[c][16 * m + n])) + flushed(even + odd);
        tiles_[c][16 * m + n] = Kokkos::bit_cast<std::uint32_t>(flushed(sum));
      }
    }
  }

 private:
  static float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x; }
  static float lower(std::uint32_t pair) { return flushed(Kokkos::bit_cast<float>(pair << 16U)); }
  static float upper(std::uint32_t pair) { return flushed(Kokkos::bit_cast<float>(pair & 0xFFFF0000U)); }

  std::array<std::array<std::uint32_t, 256>, 8> tiles_{};
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("A packed block has every element at its index, and zeros outside the matrix", "[tiles]",
                        reference::StoredTypes) {
  on_all_units<TestType>([](const TileUnit& unit, auto word) {
    using Word = decltype(word);
    for (const TileSide side : {TileSide::left, TileSide::right}) {
      for (const bool k_across : {false, true}) {
        const Stored<TestType> whole(64, 64, k_across, 3);
        check_packing<Word>(unit.lines, side, whole, 0, 0, 64 / kStepExtent<Word>);
        check_packing<Word>(unit.lines, side, whole, 32, 32, 1);
        const Stored<TestType> ragged(45, 75, k_across, 4);
        check_packing<Word>(unit.lines, side, ragged, 0, 0, 3);
        check_packing<Word>(unit.lines, side, ragged, 32, 64, 1);
        check_packing<Word>(unit.lines, side, Stored<TestType>(1, 1, k_across, 5), 0, 0, 2);
      }
    }
  });
}

TEMPLATE_LIST_TEST_CASE("Every tile unit of this processor multiplies as double does", "[tiles]",
                        reference::StoredTypes) {
  on_all_units<TestType>([](const TileUnit& unit, auto word) {
    using Word = decltype(word);
    const TileUnitInUse in_use(unit);
    const auto multiply = [&](const TileProduct& product) { in_use.product(product); };
    check_product<Word, TestType>(unit.lines, 32, 32, 256, multiply);
    for (std::int64_t rows = 1; rows <= kTileRows; ++rows) {
      check_product<Word, TestType>(unit.lines, rows, kTileRows + 1 - rows, 45, multiply);
    }
    check_product<Word, TestType>(unit.lines, 1, 1, 1, multiply);
  });
}

TEMPLATE_LIST_TEST_CASE("Neither what a product reads once nor the work beside it changes its bits", "[tiles]",
                        reference::StoredTypes) {
  on_all_units<TestType>([](const TileUnit& unit, auto word) {
    const Operands<decltype(word), TestType> of(unit.lines, 32, 32, 230);
    const TileUnitInUse in_use(unit);
    const Lines<float> before(kTileElements, 0.5F);
    const Lines<float> plain(kTileElements, 0.5F);
    in_use.product({plain.data(), plain.data(), of.left.data(), of.right.data(), of.steps});
    for (const ReadOnce once : {ReadOnce::neither, ReadOnce::left, ReadOnce::right}) {
      std::vector<std::int64_t> done;
      const SideWork beside{[](const void* list, std::int64_t step) {
                              auto& steps = *static_cast<std::vector<std::int64_t>*>(const_cast<void*>(list));
                              steps.push_back(step);
                            },
                            &done};
      const Lines<float> c(kTileElements, 7.0F);
      in_use.product({c.data(), before.data(), of.left.data(), of.right.data(), of.steps, once, beside});
      REQUIRE(std::equal(c.data(), c.data() + kTileElements, plain.data()));
      std::vector<std::int64_t> all(static_cast<std::size_t>(of.steps));
      std::iota(all.begin(), all.end(), 0);
      REQUIRE(done == all);
    }
  });
}

TEST_CASE("The reason why AMX is not used is told", "[tiles]") {
  REQUIRE(note_on_amx({}).empty());
  REQUIRE(note_on_amx({.named = true}).empty());
  REQUIRE(note_on_amx({.named = true, .refused = EPERM}) == "AMX refused by the kernel (Operation not permitted)");
  REQUIRE(note_on_amx({.named = true, .wrong = true}) == "AMX multiplied wrongly");
}

#if defined(__x86_64__)
// The program does not use a unit that multiplies wrongly, and the tests of units would then pass without it.
TEST_CASE("A processor has its units", "[tiles]") {
  const auto names = [](const std::vector<TileUnit>& units) {
    std::string all;
    for (const TileUnit& unit : units) all += std::string(unit.name) + "; ";
    return all;
  };
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  const bool pairs = avx512 && __builtin_cpu_supports("avx512bf16") != 0;
  constexpr unsigned kAmx = 1U << 22 | 1U << 24;  // amx-bf16 and amx-tile
  std::array<unsigned, 4> leaf{};
  const bool asked = __get_cpuid_count(7, 0, &leaf[0], &leaf[1], &leaf[2], &leaf[3]) != 0;
  const bool has_amx = pairs && asked && (leaf[3] & kAmx) == kAmx && amx::refusal() == 0;
  const std::string floats = std::string(avx512 ? "AVX-512; " : "") + (avx2 ? "AVX2; " : "base; ");
  REQUIRE(names(tile_units<float>()) == floats);
  REQUIRE(names(tile_units<Float16>()) == floats);
  REQUIRE(names(tile_units<Bfloat16>()) ==
          (has_amx ? "AMX; " : "") + std::string(pairs ? "AVX-512 BF16; " : "") + floats);
}

TEST_CASE("AVX-512 BF16 adds in the order of k, and AMX does not", "[tiles]") {
  for (const TileUnit& unit : tile_units<Bfloat16>()) {
    CAPTURE(unit.name);
    CHECK(unit.in_order == (std::string_view(unit.name) != "AMX"));
  }
}

TEST_CASE("AMX adds in the order of its manual, and takes denormal numbers for zero", "[tiles]") {
  const TileUnit& unit = tile_units<Bfloat16>().front();
  if (!unit.overlaps) SKIP("this processor has no AMX");
  for (const float scale : {1.0F, 1e-18F}) {
    Operands<Bfloat16> of(unit.lines, 32, 32, 160);
    for (std::int64_t i = 0; i < of.steps * kStepElements<Bfloat16>; ++i) {
      of.left.data()[i] = Bfloat16(scale * static_cast<float>(of.left.data()[i]));
      of.right.data()[i] = Bfloat16(scale * static_cast<float>(of.right.data()[i]));
    }
    const Lines<float> expected(kTileElements);
    const Lines<float> got(kTileElements);
    PlainTiles tiles;
    amx::product_on(tiles, {expected.data(), nullptr, of.left.data(), of.right.data(), of.steps});
    TileUnitInUse(unit).product({got.data(), nullptr, of.left.data(), of.right.data(), of.steps});
    REQUIRE(std::memcmp(got.data(), expected.data(), kTileElements * sizeof(float)) == 0);
    REQUIRE(std::any_of(got.data(), got.data() + kTileElements, [](float x) { return x != 0.0F; }));
  }
}

TEST_CASE("AMX's order of instructions multiplies blocks", "[tiles]") {
  const TileUnit& unit = tile_units<Bfloat16>().front();
  if (!unit.pairs) SKIP("this processor cannot pack pairs");
  PlainTiles tiles;
  const auto multiply = [&](const TileProduct& product) { amx::product_on(tiles, product); };
  check_product<Bfloat16, Bfloat16>(unit.lines, 32, 32, 256, multiply);
  check_product<Bfloat16, Bfloat16>(unit.lines, 19, 27, 45, multiply);
}
#endif

}  // namespace kozero::kernels
