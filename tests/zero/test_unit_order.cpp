// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_unit_order.cpp: the units that follow each unit in a pass.
#include <catch2/catch_test_macros.hpp>

#include <kozero/zero/gathered_units.hpp>

#include "vector_row.hpp"

using namespace kozero;
using zero::UnitOrder;

namespace {

void add_unit(ParameterTable& table, int slot, VocabularyUse vocabulary = VocabularyUse::none) {
  const std::string name = "unit " + std::to_string(table.num_units());
  table.add_unit(name, slot, vocabulary);
  table.add(tests::vector_row(name, 64));
}

/// An embedding, `blocks` blocks, and a head.
ParameterTable decoder_of(int blocks) {
  ParameterTable table;
  add_unit(table, 0);
  for (int block = 0; block < blocks; ++block) add_unit(table, 1);
  add_unit(table, 2);
  return table;
}

}  // namespace

TEST_CASE("a pass goes forward to the last unit and back to the first block") {
  UnitOrder order(decoder_of(2));
  std::vector<int> next = {order.ahead(1)};
  for (const int unit : {1, 2, 3, 2, 1}) {
    order.reach(unit);
    next.push_back(order.ahead(1));
  }
  order.begin();
  next.push_back(order.ahead(1));
  CHECK(next == std::vector<int>{1, 2, 3, 2, 1, -1, 1});
  CHECK(order.ahead(2) == 2);
}

TEST_CASE("groups that are computed again are used upwards, the last group is not one of them") {
  const auto order_of = [](int blocks, int held) {
    const std::vector<int> all = UnitOrder(decoder_of(blocks), held).all();
    return std::vector<int>(all.begin() + blocks + 2, all.end());
  };
  CHECK(order_of(5, 1) == std::vector<int>{5, 4, 3, 2, 1});
  CHECK(order_of(5, 2) == std::vector<int>{5, 3, 4, 1, 2});
  CHECK(order_of(6, 2) == std::vector<int>{6, 5, 3, 4, 1, 2});
  CHECK(order_of(5, 4) == std::vector<int>{5, 1, 2, 3, 4});
  CHECK(order_of(5, 5) == std::vector<int>{5, 4, 3, 2, 1});
}

TEST_CASE("backward ends at the first unit that trains; of its group the blocks below are computed again too") {
  const auto order_of = [](int blocks, int held, int trained) {
    ParameterTable table = decoder_of(blocks);
    for (int unit = 0; unit < trained; ++unit) table.freeze(unit);
    const std::vector<int> all = UnitOrder(table, held).all();
    return std::vector<int>(all.begin() + blocks + 2, all.end());
  };
  CHECK(order_of(5, 1, 1) == std::vector<int>{5, 4, 3, 2, 1});
  CHECK(order_of(5, 1, 4) == std::vector<int>{5, 4});
  CHECK(order_of(5, 2, 4) == std::vector<int>{5, 3, 4});
  CHECK(order_of(6, 2, 6) == std::vector<int>{6});
  CHECK(order_of(6, 3, 3) == std::vector<int>{6, 5, 4, 1, 2, 3});
  CHECK(order_of(5, 1, 6).empty());
}

TEST_CASE("the head reads the blocks of a vocabulary downwards, then upwards") {
  ParameterTable tied;
  for (int block = 0; block < 3; ++block) add_unit(tied, 0, VocabularyUse::both);
  for (const int slot : {2, 1, 1, 2}) add_unit(tied, slot);
  CHECK(UnitOrder(tied).all() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 2, 1, 0, 0, 1, 2, 5, 4});

  ParameterTable untied;
  for (int block = 0; block < 2; ++block) add_unit(untied, 0, VocabularyUse::lookup);
  for (const int slot : {1, 2}) add_unit(untied, slot);
  for (int block = 0; block < 2; ++block) add_unit(untied, 0, VocabularyUse::head);
  CHECK(UnitOrder(untied).all() == std::vector<int>{0, 1, 2, 3, 5, 4, 4, 5, 2});
}

TEST_CASE("blocks that are held together get buffers, and no other slot more") {
  ParameterTable table;
  for (int block = 0; block < 5; ++block) add_unit(table, kEmbeddingSlot, VocabularyUse::both);
  for (int block = 0; block < 7; ++block) add_unit(table, kBlockSlot);
  add_unit(table, kHeadSlot);
  const auto names = [&](int ahead, int held) {
    const SlotBuffers buffers(table, ahead, held);
    std::vector<std::size_t> counts(3);
    for (const auto& buffer : buffers.buffers()) {
      ++counts[static_cast<std::size_t>(buffer.name[5] - '0')];  // "slot 1, buffer 2"
    }
    return counts;
  };
  CHECK(names(0, 1) == std::vector<std::size_t>{1, 1, 1});
  CHECK(names(1, 1) == std::vector<std::size_t>{2, 2, 1});
  CHECK(names(1, 4) == std::vector<std::size_t>{2, 5, 1});
  CHECK(names(9, 4) == std::vector<std::size_t>{5, 7, 1});
}

TEST_CASE("a unit that is used twice in a row has two positions") {
  ParameterTable tied;
  add_unit(tied, 0, VocabularyUse::both);
  for (const int slot : {1, 2}) add_unit(tied, slot);
  UnitOrder order(tied);
  for (const int unit : {1, 2, 0}) order.reach(unit);
  CHECK(order.ahead(1) == 0);
  order.reach(0);
  CHECK(order.ahead(1) == 1);
}

TEST_CASE("what comes before a unit of the pass") {
  UnitOrder order(decoder_of(3));
  order.reach(1);
  CHECK(order.comes_before(2, 2));
  CHECK_FALSE(order.comes_before(3, 2));
  CHECK_FALSE(order.comes_before(-1, 3));
}

TEST_CASE("forward alone, again and again, begins anew with unit 0") {
  UnitOrder order(decoder_of(1));
  for (int pass = 0; pass < 2; ++pass) {
    order.begin();
    CHECK(order.ahead(1) == 1);
    for (const int unit : {1, 2}) {
      order.reach(unit);
      CHECK(order.ahead(1) == (unit == 2 ? 1 : 2));
    }
  }
}

TEST_CASE("one unit has nothing ahead of it") {
  ParameterTable one;
  add_unit(one, 0);
  UnitOrder order(one);
  order.begin();
  CHECK(order.ahead(1) == -1);
}
