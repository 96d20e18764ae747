// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_parameter_table.cpp: offsets of tensors in units, ranks' shards, initial values of any range, slot buffers.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/random.hpp>

using namespace kozero;

namespace {

ParameterTable example() {
  ParameterTable table;
  table.add_unit("embedding", 0);
  table.add({.name = "wte", .shape = {5, 13}});
  table.add_unit("block", 1);
  table.add({.name = "q", .shape = {13, 13}});
  table.add_joined({.name = "k", .shape = {7, 13}});
  table.add({.name = "norm", .shape = {13}, .decay = false, .initial = Initial::ones});
  return table;
}

}  // namespace

TEST_CASE("tensors are aligned to 64 elements, joined ones directly behind") {
  const auto table = example();
  CHECK(table.unit(0).extent == 128);  // 65 elements and pads
  CHECK(table.unit(1).offset == 128);
  CHECK(table.row(1).offset == 0);
  CHECK(table.row(2).offset == 169);
  CHECK(table.row(3).offset == 320);  // 169 + 91 = 260, aligned
  CHECK(table.unit(1).extent == 384);
  CHECK(table.extent() == 512);
  CHECK(table.num_parameters() == 65 + 169 + 91 + 13);
  CHECK(table.num_slots() == 2);
  CHECK(table.slot_extent(1) == 384);
}

TEST_CASE("a pad lies behind its tensor and is no parameter") {
  ParameterTable table;
  table.add_unit("embedding", 0);
  table.add({.name = "wte", .shape = {5, 13}, .pad = 5 * 13});
  table.add({.name = "wpe", .shape = {2, 13}});
  CHECK(table.row(1).offset == 192);  // 65 + 65 = 130, aligned
  CHECK(table.unit(0).extent == 256);
  CHECK(table.num_parameters() == 65 + 26);
  table.add_unit("head", 1);
  table.add({.name = "lm_head", .shape = {5, 13}, .pad = 5 * 13});
  CHECK(table.unit(1).extent == 192);
}

TEST_CASE("a tensor in blocks of rows has a unit for each, and is one tensor with one set of initial values") {
  ParameterTable table;
  table.add_unit("block.0", 0, VocabularyUse::both);
  table.add({.name = "wte", .shape = {8, 13}});
  table.add_unit("block.1", 0, VocabularyUse::both);
  table.continue_tensor({.name = "wte", .shape = {5, 13}, .pad = 3 * 13});
  table.add_unit("positions", 2);
  table.add({.name = "wpe", .shape = {2, 13}});
  REQUIRE(table.tensors().size() == 2);
  CHECK(table.tensors()[0].shape == std::vector<std::int64_t>{13, 13});
  CHECK(table.num_parameters() == 169 + 26);
  CHECK(table.row(1).first == 104);
  CHECK(table.row(1).unit == 1);
  CHECK(table.rows_of_tensor(0).size() == 2);
  CHECK(table.rows_of_tensor(1).front().name == "wpe");
  CHECK(table.row(2).tensor == 1);
  CHECK_THROWS_AS(table.continue_tensor({.name = "wte", .shape = {1, 13}}), Error);  // the last one is wpe

  std::vector<float> whole(169), blocks(169), unit(128);
  fill_initial({.name = "wte", .shape = {13, 13}}, 3, 0, HostVector<float>(whole.data(), 169));
  for (const auto& row : table.rows_of_tensor(0)) {
    fill_initial_unit(table, row.unit, 3, 0, HostVector<float>(unit.data(), 128));
    std::copy_n(unit.begin(), row.extent(), blocks.begin() + row.first);
  }
  CHECK(blocks == whole);
}

TEST_CASE("a joined tensor needs one before it") {
  ParameterTable table;
  CHECK_THROWS_AS(table.add({.name = "early", .shape = {1}}), Error);
  table.add_unit("u", 0);
  CHECK_THROWS_AS(table.add_joined({.name = "alone", .shape = {1}}), Error);
}

TEST_CASE("the tensors of a unit are those that were added to it") {
  auto table = example();
  const int empty = table.add_unit("empty", 0);
  std::vector<std::string> names;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    for (const Parameter& row : table.rows_of(unit)) {
      CHECK(row.unit == unit);
      names.push_back(row.name);
    }
  }
  CHECK(names.size() == table.rows().size());
  CHECK(names.front() == table.rows().front().name);
  CHECK(names.back() == table.rows().back().name);
  CHECK(table.rows_of(empty).empty());
}

TEST_CASE("a range of a unit has a part of a tensor: none, all, one end or the middle") {
  const Parameter row{.name = "w", .shape = {10}, .first = 100, .offset = 64};
  const auto part = [&](std::int64_t begin, std::int64_t extent) {
    const TensorPart found = row.part_in(begin, extent);
    return std::array<std::int64_t, 3>{found.begin, found.first, found.extent};
  };
  using Part = std::array<std::int64_t, 3>;
  CHECK(part(0, 64) == Part{0, 0, 0});
  CHECK(part(74, 64) == Part{0, 0, 0});
  CHECK(part(70, 0) == Part{0, 0, 0});
  CHECK(part(0, 128) == Part{64, 100, 10});
  CHECK(part(60, 6) == Part{4, 100, 2});
  CHECK(part(70, 58) == Part{0, 106, 4});
  CHECK(part(66, 3) == Part{0, 102, 3});
}

TEST_CASE("initial values do not depend on how a unit is cut") {
  const auto table = example();
  std::vector<float> whole(384, -1.0F);
  fill_initial_unit(table, 1, 42, 0, HostVector<float>(whole.data(), whole.size()));
  for (const std::int64_t cut : {1, 64, 170, 300, 383}) {
    std::vector<float> left(static_cast<std::size_t>(cut)), right(static_cast<std::size_t>(384 - cut));
    fill_initial_unit(table, 1, 42, 0, HostVector<float>(left.data(), left.size()));
    fill_initial_unit(table, 1, 42, cut, HostVector<float>(right.data(), right.size()));
    left.insert(left.end(), right.begin(), right.end());
    CHECK(left == whole);
  }
  CHECK(whole[260] == 0.0F);  // a pad
  CHECK(whole[320] == 1.0F);
  CHECK(whole[333] == 0.0F);
}

TEST_CASE("a rank's shards lie one after another in unit order, and all ranks' shards are all units") {
  ParameterTable table;
  for (const std::int64_t extent : {64, 320, 5}) {
    table.add_unit("unit", 0);
    table.add(Parameter{.name = "weight", .shape = {extent}});
  }
  for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    std::vector<std::int64_t> ends(3, 0);  // by unit: the begin of the next rank's shard
    for (int rank = 0; rank < num_ranks; ++rank) {
      const ShardLayout layout(table, num_ranks, rank);
      std::int64_t first = 0;
      for (int unit = 0; unit < table.num_units(); ++unit) {
        const UnitRange& shard = layout.shard(unit);
        CHECK(shard.unit == unit);
        CHECK(shard.begin == ends[static_cast<std::size_t>(unit)]);
        CHECK(shard.first == first);
        first += shard.extent;
        ends[static_cast<std::size_t>(unit)] += shard.extent;
      }
      CHECK(layout.extent() == first);
    }
    for (int unit = 0; unit < table.num_units(); ++unit) {
      CHECK(ends[static_cast<std::size_t>(unit)] == table.unit(unit).extent);
    }
  }
}

TEST_CASE("consecutive units of a slot use its buffers in turn; other units share one") {
  ParameterTable table;
  for (const int slot : {0, 1, 1, 1, 0}) {
    table.add_unit("unit", slot);
    table.add(Parameter{.name = "weight", .shape = {64 * table.num_units()}});
  }
  const auto buffers_of_units = [&](int ahead) {
    const SlotBuffers buffers(table, ahead);
    std::vector<std::size_t> of;
    for (int unit = 0; unit < 5; ++unit) of.push_back(buffers.of(unit));
    return of;
  };
  CHECK(buffers_of_units(0) == std::vector<std::size_t>{0, 1, 1, 1, 0});
  CHECK(buffers_of_units(1) == std::vector<std::size_t>{0, 1, 2, 1, 0});
  CHECK(buffers_of_units(9) == std::vector<std::size_t>{0, 1, 2, 3, 0});
  const SlotBuffers buffers(table, 1);
  CHECK(buffers.buffers().size() == 3);
  CHECK(buffers.buffers()[0].extent == 64 * 5);
  CHECK(buffers.buffers()[2].extent == 64 * 4);
  CHECK(buffers.buffers()[2].name == "slot 1, buffer 2");
}

TEST_CASE("a unit whose tensors are all frozen has no elements in the table of gradients, and no buffer") {
  ParameterTable table;
  for (const int slot : {0, 1, 1, 1, 0}) {
    table.add_unit("unit", slot);
    table.add(Parameter{.name = "weight", .shape = {10}});
    table.add_joined(Parameter{.name = "bias", .shape = {5}});
  }
  CHECK(table.first_trainable_unit() == 0);
  CHECK(table.num_trainable() == table.num_parameters());
  for (const int tensor : {0, 1, 2, 4, 5}) table.freeze(tensor);
  CHECK(table.num_trainable() == 5 + 15 + 15);
  CHECK(table.first_trainable_unit() == 1);
  CHECK_FALSE(table.unit(0).trainable);
  CHECK(table.unit(1).trainable);
  CHECK_FALSE(table.unit(2).trainable);
  CHECK_FALSE(table.is_trainable(1, 0, 10));
  CHECK(table.is_trainable(1, 9, 2));  // of the bias
  CHECK(table.is_trainable(3));
  CHECK_FALSE(table.is_trainable(4));

  const ParameterTable gradients = table.without_frozen_units();
  CHECK(gradients.num_units() == 5);
  CHECK(gradients.extent() == 3 * 64);
  CHECK(gradients.unit(2).extent == 0);
  CHECK(gradients.unit(3).offset == 64);
  CHECK(gradients.rows_of(2).empty());
  CHECK(gradients.rows_of(1).size() == 2);
  CHECK(SlotBuffers(gradients, 1).buffers().size() == 3);  // one of slot 0, two of slot 1
  CHECK(SlotBuffers(gradients, 1).of(1) != SlotBuffers(gradients, 1).of(3));
}
