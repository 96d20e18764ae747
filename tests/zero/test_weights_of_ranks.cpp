// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_weights_of_ranks.cpp: the weights that acquire returns after shards were filled, changed and published.
#include <bit>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include <kozero/zero/weights.hpp>
#include "kernels/launch/reduce.hpp"

#include "tiny_table.hpp"

using namespace kozero;
using distributed::Placement;
using Weights = zero::Weights<float>;

namespace {

float value_at(int round, int unit, std::int64_t index) {
  return static_cast<float>(round * 1000 + unit * 400 + index);
}

void fill_slices(const Weights& weights, int round) {
  for (const auto& range : weights.master().layout().shards()) {
    const auto mine = weights.master().shard(range.unit);
    for (std::int64_t i = 0; i < range.extent; ++i) mine(i) = value_at(round, range.unit, range.begin + i);
  }
}

bool shows(Weights& weights, const ParameterTable& table, int unit, int round) {
  const auto all = weights.acquire(unit);
  bool equal = static_cast<std::int64_t>(all.extent(0)) == table.unit(unit).extent;
  for (std::int64_t i = 0; equal && i < table.unit(unit).extent; ++i) equal = all(i) == value_at(round, unit, i);
  weights.release(unit);
  return equal;
}

std::int64_t gathers(const distributed::CountedCommunicator& comm) { return comm.counts().rows()[1].calls; }

}  // namespace

TEST_CASE("acquire shows every rank's shards as they were published last") {
  const auto table = tests::tiny_table();
  for (const auto placement : {Placement::replicated, Placement::sharded}) {
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    Weights weights(table, *comm, {placement, placement}, ledger);
    for (const int round : {1, 2}) {
      fill_slices(weights, round);
      weights.publish();
      for (int unit = 0; unit < table.num_units(); ++unit) CHECK(shows(weights, table, unit, round));
    }
  }
}

TEMPLATE_TEST_CASE("weights in 16 bits are rounded from their master, whose bits stay", "", Bfloat16, Float16) {
  const auto table = tests::tiny_table();
  const zero::WeightPlacements rows[] = {{Placement::replicated, Placement::replicated},
                                         {Placement::replicated, Placement::sharded},
                                         {Placement::sharded, Placement::sharded}};
  for (const auto& placements : rows) {
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    zero::Weights<TestType> weights(table, *comm, placements, ledger);
    for (const auto& range : weights.master().layout().shards()) {
      for (std::int64_t i = 0; i < range.extent; ++i)
        weights.master().shard(range.unit)(i) = value_at(1, range.unit, range.begin + i);
    }
    const auto hashes = zero::tensor_hashes(table, weights.master());
    weights.publish();
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const auto shown = weights.acquire(unit);
      bool equal = true;
      for (std::int64_t i = 0; i < table.unit(unit).extent; ++i) {
        equal = equal && shown(i).bits() == TestType(value_at(1, unit, i)).bits();
      }
      CHECK(equal);
      weights.release(unit);
    }
    CHECK(zero::tensor_hashes(table, weights.master()) == hashes);
  }
}

TEMPLATE_TEST_CASE("rounded shards that were written beside the master are shared without the master", "", Bfloat16,
                   Float16) {
  const auto table = tests::tiny_table();
  for (const auto stored : {Placement::replicated, Placement::sharded}) {
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    zero::Weights<TestType> weights(table, *comm, {stored, Placement::sharded}, ledger);
    weights.publish();
    for (int unit = 0; unit < table.num_units(); ++unit) {
      weights.acquire(unit);  // this gathered copy must not stay
      weights.release(unit);
    }
    for (const auto& range : weights.master().layout().shards()) {
      const auto rounded = weights.stored().shard(range.unit);
      REQUIRE(static_cast<std::int64_t>(rounded.extent(0)) == range.extent);
      for (std::int64_t i = 0; i < range.extent; ++i) rounded(i) = TestType(value_at(2, range.unit, range.begin + i));
    }
    weights.share({0, 1, 2});
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const auto shown = weights.acquire(unit);
      bool equal = true;
      for (std::int64_t i = 0; i < table.unit(unit).extent; ++i) {
        equal = equal && shown(i).bits() == TestType(value_at(2, unit, i)).bits();
      }
      CHECK(equal);
      weights.release(unit);
    }
  }
}

TEST_CASE("a sharded unit is gathered once while its slot is its own") {
  const auto table = tests::tiny_table();
  MemoryLedger ledger;
  distributed::CountedCommunicator comm(tests::all_ranks(ledger));
  Weights weights(table, comm, {Placement::sharded, Placement::sharded}, ledger);
  fill_slices(weights, 1);
  weights.publish();
  for (const int unit : {0, 1, 1, 2, 0}) CHECK(shows(weights, table, unit, 1));
  CHECK(gathers(comm) == 3);
  CHECK(shows(weights, table, 1, 1));  // unit 2 took its slot
  CHECK(gathers(comm) == 4);
}

TEST_CASE("holding a unit twice, or two units of one slot, is an internal error") {
  const auto table = tests::tiny_table();
  MemoryLedger ledger;
  const auto comm = tests::all_ranks(ledger);
  Weights weights(table, *comm, {Placement::sharded, Placement::sharded}, ledger);
  weights.acquire(1);
  CHECK_THROWS_AS(weights.acquire(1), Error);
  CHECK_THROWS_AS(weights.acquire(2), Error);
  CHECK_THROWS_AS(weights.release(0), Error);
}

TEST_CASE("a gathered copy that is not its owners' is named when it is released") {
  const auto table = tests::tiny_table();
  MemoryLedger ledger;
  const auto comm = tests::all_ranks(ledger);
  Weights weights(table, *comm, {Placement::sharded, Placement::sharded}, ledger);
  fill_slices(weights, 1);
  weights.publish();
  std::vector<std::uint64_t> owners;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const auto all = weights.acquire(unit);
    for (int rank = 0; rank < comm->size(); ++rank) {
      const Partition& cut = weights.master().layout().partition(unit);
      owners.push_back(kernels::bit_hash(Device(), slice(all, cut.begin(rank), cut.size(rank))));
    }
    weights.release(unit);
  }
  weights.watch_copies(owners);
  weights.share({0, 1, 2});
  const auto use = [&](int unit, bool flips) {
    const auto all = weights.acquire(unit);
    float& last = const_cast<float&>(all(static_cast<std::size_t>(table.unit(unit).extent - 1)));
    if (flips) last = std::bit_cast<float>(std::bit_cast<std::uint32_t>(last) ^ 1U);
    weights.release(unit);
  };
  for (const int unit : {0, 1, 2}) use(unit, false);
  CHECK(weights.first_wrong_copy().empty());
  use(1, true);
  CHECK(weights.first_wrong_copy() == "block.0");
  weights.watch_copies(owners);
  CHECK(weights.first_wrong_copy().empty());
  weights.watch_copies({});
  use(1, true);
  CHECK(weights.first_wrong_copy().empty());
}
