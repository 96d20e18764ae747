// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_trace.cpp: the first difference of two traces, a tensor gathered from its shards, and traces in files.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <fstream>
#include <limits>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/run/trace.hpp>

#include <distributed/rank_groups.hpp>

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using run::Trace;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Trace three_steps() {
  return {.losses = {4.5, 4.25, kNan},
          .norms = {1.0, 0.0, 2.0},
          .hashes = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}},
          .tensors = {"wte", "ln", "head"},
          .weights = {{1.0F, 2.0F}, {}, {0.0F}}};
}

}  // namespace

TEST_CASE("equal traces have no difference, NaNs included") {
  CHECK_FALSE(run::difference(three_steps(), three_steps()).has_value());
}

TEST_CASE("the first difference is named in a step's order, with both values and a tensor") {
  const Trace first = three_steps();
  Trace other = first;
  other.hashes[2][1] = 0;
  auto found = run::difference(first, other);
  REQUIRE(found.has_value());
  CHECK(found->text == "step 3: the bits of ln after it");
  CHECK(found->tensor == 1);

  other.norms[1] = -0.0;  // an earlier difference in bits, equal as a number
  found = run::difference(first, other);
  CHECK(found->text == "step 2: the gradient norm is -0 and was 0");
  CHECK(found->tensor == 1);  // the last step's tensor

  other.hashes[1][2] = 0;
  CHECK(run::difference(first, other)->tensor == 2);

  other.losses[1] = 4.2500000000000009;
  found = run::difference(first, other);
  CHECK(found->text == "step 2: the loss is 4.2500000000000009 and was 4.25");

  other = first;
  other.losses[2] = 4.0;
  found = run::difference(first, other);
  CHECK(found->text == "step 3: the loss is 4 and was nan");
  CHECK_FALSE(found->tensor.has_value());
}

TEST_CASE("the first element that differs in bits is named with both values") {
  CHECK(run::element_difference("wte", {1.0F, 0.0F, 3.0F}, {1.0F, -0.0F, 4.0F}, 3) ==
        "wte[1] is -0 and was 0 after step 3");
  CHECK(run::element_difference("wte", {0.1F}, {0.100000009F}, 2) ==
        "wte[0] is 0.100000009 and was 0.100000001 after step 2");
  CHECK(run::element_difference("wte", {1.0F}, {1.0F}, 3).empty());
}

TEST_CASE("a tensor is gathered whole from the shards of 1 to 3 ranks") {
  test::for_each_group_size([](const test::RankGroup& group) {
    MemoryLedger ledger;
    const auto comm = distributed::make_communicator(group.size() == 1 ? "self" : "mpi", group.ranks(), ledger);
    ParameterTable table;
    for (int unit = 0; unit < 2; ++unit) {
      table.add_unit("unit " + std::to_string(unit), 0);
      for (const std::int64_t extent : {5, 200}) {
        Parameter row;
        row.name = "row " + std::to_string(extent);
        row.shape = {extent};
        table.add(row);
      }
    }
    table.add_unit("unit 2", 0);
    Parameter more = table.rows().back();
    more.shape = {70};
    table.continue_tensor(more);
    const distributed::DistributedArray<float> master(table, *comm, distributed::Placement::sharded,
                                                      distributed::Storage{Memory::parameters, "master"}, ledger);
    for (const auto& range : master.layout().shards()) {
      for (std::int64_t i = 0; i < range.extent; ++i) {
        master.shard(range.unit)(i) = static_cast<float>(1000 * range.unit + range.begin + i);
      }
    }
    for (int tensor = 0; tensor < std::ssize(table.tensors()); ++tensor) {
      std::vector<float> wanted;
      for (const auto& row : table.rows_of_tensor(tensor)) {
        for (std::int64_t i = 0; group.rank() == 0 && i < row.extent(); ++i) {
          wanted.push_back(static_cast<float>(1000 * row.unit + row.offset + i));
        }
      }
      CHECK(run::whole_tensor(table, tensor, master) == wanted);
    }
  });
}

TEST_CASE("a trace is read as it was written, and nothing else is") {
  if (test::world_rank() > 0) return;
  const auto path = (std::filesystem::temp_directory_path() / ("kozero_trace_" + std::to_string(::getpid()))).string();
  const Trace first = three_steps();
  run::write_trace(path, first);
  const Trace again = run::read_trace(path);
  CHECK_FALSE(run::difference(first, again).has_value());
  CHECK(again.tensors == first.tensors);
  CHECK(again.weights == first.weights);
  Trace broken = first;
  broken.hashes[1].pop_back();
  run::write_trace(path, broken);
  CHECK_THROWS_WITH(run::read_trace(path), ContainsSubstring("no whole trace of verify"));
  std::ofstream(path) << "text";
  CHECK_THROWS_WITH(run::read_trace(path), ContainsSubstring("no whole trace of verify"));
  std::filesystem::remove(path);
}
