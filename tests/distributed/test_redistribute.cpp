// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_redistribute.cpp: the elements of each rank before and after every redistribution.
// Blocks of 64 equal elements are drawn as one number; the array is 5 blocks. On 2 ranks shards are 3 and 2 blocks:
//   Partial      rank 0:  1  2  3  4  5       Replicated   rank 0: 11 22 33 44 55      Sharded   rank 0: 11 22 33
//                rank 1: 10 20 30 40 50                    rank 1: 11 22 33 44 55                rank 1:          44 55
// On 3 ranks shards are 2, 2 and 1 blocks; on 4 they are 2, 2, 1 and none; on 7 there are 1 each, then none.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include <cmath>

#include <support/nccl_mock.hpp>

#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::distributed;
using kozero::test::RankGroup;
using Row = std::vector<float>;

namespace {

constexpr int kBlocks = 5;
constexpr Fold kOnto{.onto = true};
constexpr int kUnit = 1;  // unit 0 is before it, so that offsets are not zero

/// Two units of one slot.
ParameterTable two_units() {
  ParameterTable table;
  for (const std::int64_t blocks : {2, kBlocks}) {
    table.add_unit("unit of " + std::to_string(blocks), 0);
    table.add(Parameter{.name = "weight", .shape = {blocks * kAlignment}});
  }
  return table;
}

// Draws and fills unit 1 of the arrays of one rank.
class Board {
 public:
  using Array = DistributedArray<float>;

  Board(const RankGroup& group, const char* backend)
      : table_(two_units()), comm_(make_communicator(backend, group.ranks(), ledger_)) {}

  Array array(Placement placement, const Row& row, std::optional<int> ahead = {}) {
    const Array array(table_, *comm_, placement, {.category = Memory::workspace, .label = "array", .ahead = ahead},
                      ledger_);
    fill(array, row);
    return array;
  }

  static void fill(const Array& array, const Row& row) {
    const auto local = array.local(kUnit);
    const auto host = Kokkos::create_mirror_view(local);
    REQUIRE(host.extent(0) == row.size() * kAlignment);
    for (std::size_t i = 0; i < host.extent(0); ++i) host(i) = row[i / kAlignment];
    Kokkos::deep_copy(local, host);
  }

  static Row draw(const Array& array) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array.local(kUnit));
    Row row;
    for (std::size_t i = 0; i < host.extent(0); ++i) {
      if (i % kAlignment == 0) row.push_back(host(i));
      if (host(i) != row.back()) row.back() = std::nanf("");
    }
    return row;
  }

  /// Starts the redistribution, waits for it, and waits until its arguments are reusable.
  static void move(const Array& from, const Array& to, Fold fold = {}) {
    auto transfer = redistribute(from, to, kUnit, fold);
    transfer.wait();
    CHECK_FALSE(transfer.is_under_way());
    transfer.wait_until_reusable();
  }

  // This rank's blocks of `row`.
  [[nodiscard]] Row mine(const Row& row) const {
    const Partition partition(kBlocks * kAlignment, comm_->size());
    const auto begin = partition.begin(comm_->rank()) / kAlignment;
    const auto end = partition.end(comm_->rank()) / kAlignment;
    return Row(row.begin() + begin, row.begin() + end);
  }

  // 1 2 3 4 5, times ten to the rank.
  [[nodiscard]] Row addend() const {
    Row row;
    for (int b = 1; b <= kBlocks; ++b) row.push_back(static_cast<float>(b * std::pow(10, comm_->rank())));
    return row;
  }

  // 11 22 33 44 55 on 2 ranks, 111 222 ... on 3; plus `more`.
  [[nodiscard]] Row sum(float more = 0.0F) const {
    Row row;
    float ones = 0.0F;
    for (int r = 0; r < comm_->size(); ++r) ones += static_cast<float>(std::pow(10, r));
    for (int b = 1; b <= kBlocks; ++b) row.push_back(more + static_cast<float>(b) * ones);
    return row;
  }

  [[nodiscard]] Communicator& comm() const { return *comm_; }
  [[nodiscard]] const ParameterTable& table() const { return table_; }
  [[nodiscard]] MemoryLedger& ledger() { return ledger_; }

 private:
  ParameterTable table_;
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
};

const Row kZeros(kBlocks, 0.0F);
const Row kHundreds(kBlocks, 100.0F);

// Partial to Sharded: each rank holds its shard of the sum.
void partial_to_sharded(Board& board) {
  const auto source = board.array(Placement::partial, board.addend());
  const auto destination = board.array(Placement::sharded, board.mine(kHundreds));
  Board::move(source, destination);
  CHECK(Board::draw(destination) == board.mine(board.sum()));
  CHECK(Board::draw(source) == board.addend());
}

// The same, added to what the shard held.
void accumulated(Board& board) {
  const auto source = board.array(Placement::partial, board.addend());
  const auto destination = board.array(Placement::sharded, board.mine(kHundreds));
  Board::move(source, destination, kOnto);
  CHECK(Board::draw(destination) == board.mine(board.sum(100.0F)));
}

// Sharded to Replicated: all ranks hold all shards. Other units stay.
void sharded_to_replicated(Board& board) {
  const auto source = board.array(Placement::sharded, board.mine({1, 2, 3, 4, 5}));
  const auto destination = board.array(Placement::replicated, kZeros);
  Kokkos::deep_copy(destination.full(0), 7.0F);
  Board::move(source, destination);
  CHECK(Board::draw(destination) == Row{1, 2, 3, 4, 5});
  const auto other = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), destination.full(0));
  CHECK(other(other.extent(0) - 1) == 7.0F);
}

// Partial to Replicated: all ranks hold the sum.
void partial_to_replicated(Board& board) {
  const auto source = board.array(Placement::partial, board.addend());
  const auto destination = board.array(Placement::replicated, kZeros);
  Board::move(source, destination);
  CHECK(Board::draw(destination) == board.sum());

  const auto in_place = source.viewed_as(Placement::replicated);
  Board::move(source, in_place);
  CHECK(Board::draw(in_place) == board.sum());
}

// Replicated to Sharded: each rank keeps its shard.
void replicated_to_sharded(Board& board) {
  const auto source = board.array(Placement::replicated, {1, 2, 3, 4, 5});
  const auto destination = board.array(Placement::sharded, board.mine(kZeros));
  Board::move(source, destination);
  CHECK(Board::draw(destination) == board.mine({1, 2, 3, 4, 5}));
}

// Equal placements: a copy.
void same_placement(Board& board) {
  const auto replicated = board.array(Placement::replicated, kZeros);
  Board::move(board.array(Placement::replicated, {1, 2, 3, 4, 5}), replicated);
  CHECK(Board::draw(replicated) == Row{1, 2, 3, 4, 5});
  const auto sharded = board.array(Placement::sharded, board.mine(kZeros));
  Board::move(board.array(Placement::sharded, board.mine({1, 2, 3, 4, 5})), sharded);
  CHECK(Board::draw(sharded) == board.mine({1, 2, 3, 4, 5}));
}

// The shards may be part of the whole unit's memory.
void in_place(Board& board) {
  const auto full = board.array(Placement::partial, board.addend());
  const auto own = full.viewed_as(Placement::sharded);
  Board::move(full, own);
  CHECK(Board::draw(own) == board.mine(board.sum()));
  const auto gathered = full.viewed_as(Placement::replicated);
  Board::move(own, gathered);
  CHECK(Board::draw(gathered) == board.sum());
}

// Units of a slot that share a buffer have the same memory, of the larger unit's extent.
void shared_buffers(Board& board) {
  const auto array = board.array(Placement::replicated, kZeros, 0);
  CHECK(array.num_buffers() == 1);
  CHECK(array.full(0).data() == array.full(1).data());
  const auto apart = board.array(Placement::replicated, kZeros, 1);
  CHECK(apart.num_buffers() == 2);
  CHECK(apart.full(0).data() != apart.full(1).data());
  Board::move(board.array(Placement::sharded, board.mine({1, 2, 3, 4, 5})), array);
  CHECK(Board::draw(array) == Row{1, 2, 3, 4, 5});
}

// Refused: to Partial; shards as whole units; accumulation of anything but sums; different tables.
void refusals(Board& board) {
  const auto source = board.array(Placement::replicated, kZeros);
  const auto partial = board.array(Placement::partial, kZeros);
  const auto sharded = board.array(Placement::sharded, board.mine(kZeros));
  CHECK_THROWS_AS(redistribute(source, partial, kUnit), Error);
  CHECK_THROWS_AS(redistribute(source, sharded, kUnit, kOnto), Error);
  CHECK_THROWS_AS(redistribute(partial, partial.viewed_as(Placement::sharded), kUnit, kOnto), Error);
  CHECK_THROWS_AS(sharded.full(kUnit), Error);
  CHECK_THROWS_AS(sharded.viewed_as(Placement::replicated), Error);
  ParameterTable shorter = board.table();
  shorter.add_unit("one more", 0);
  shorter.add(Parameter{.name = "weight", .shape = {64}});
  const DistributedArray<float> other(shorter, board.comm(), Placement::replicated, {Memory::workspace, "other"},
                                      board.ledger());
  CHECK_THROWS_AS(redistribute(source, other, 2), std::exception);
}

}  // namespace

TEST_CASE("each rank holds what the destination's placement says", "[redistribute]") {
  const RankGroup group(0);
  const tests::NcclMock nccl;
  for (const char* backend : {"auto", "mpi", "nccl", "ring"}) {
    CAPTURE(backend, group.size());
    Board board(group, backend);
    partial_to_sharded(board);
    accumulated(board);
    sharded_to_replicated(board);
    partial_to_replicated(board);
    replicated_to_sharded(board);
    same_placement(board);
    in_place(board);
    shared_buffers(board);
    refusals(board);
  }
}

TEST_CASE("in groups a sum ends in the last one, goes to the replicas, and is gathered within each", "[redistribute]") {
  using Array = DistributedArray<float>;
  const RankGroup all(0);
  for (const char* backend : {"mpi", "shm"}) {
    for (int of_group = 1; of_group < all.size(); ++of_group) {
      if (all.size() % of_group != 0) continue;
      CAPTURE(backend, all.size(), of_group);
      MemoryLedger ledger;
      const ParameterTable table = two_units();
      const MeshCommunicators owner = make_mesh(backend, all.ranks(), of_group, ledger);
      const Mesh mesh = owner.mesh();
      CHECK(mesh.num_groups() == all.size() / of_group);
      CHECK(mesh.is_first_group() == (all.rank() < of_group));
      CHECK(mesh.is_last_group() == (all.rank() >= all.size() - of_group));
      const auto array = [&](Placement placement) {
        return Array(table, mesh, placement, {.category = Memory::workspace, .label = "array"}, ledger);
      };
      Row addend, sum;
      for (int b = 1; b <= kBlocks; ++b) {
        addend.push_back(static_cast<float>(b * std::pow(10, all.rank())));
        sum.push_back(0.0F);
        for (int r = 0; r < all.size(); ++r) sum.back() += static_cast<float>(b * std::pow(10, r));
      }
      const Partition partition(kBlocks * kAlignment, of_group);
      const int index = all.rank() % of_group;
      const auto mine = [&](const Row& row) {
        return Row(row.begin() + partition.begin(index) / kAlignment, row.begin() + partition.end(index) / kAlignment);
      };
      const Row untouched(mine(sum).size(), -1.0F);

      const Array addends = array(Placement::partial);
      Board::fill(addends, addend);
      const Array reduced = array(Placement::in_last_group);
      Board::fill(reduced, untouched);
      Board::move(addends, reduced);
      CHECK(Board::draw(reduced) == (mesh.is_last_group() ? mine(sum) : untouched));
      Board::move(addends, reduced, kOnto);
      Row twice = mine(sum);
      for (float& value : twice) value *= 2.0F;
      CHECK(Board::draw(reduced) == (mesh.is_last_group() ? twice : untouched));

      Board::move(reduced, reduced.viewed_as(Placement::sharded));
      CHECK(Board::draw(reduced) == twice);
      const Array apart = array(Placement::sharded);
      Board::move(addends, apart);
      CHECK(Board::draw(apart) == mine(sum));
      const Array whole = array(Placement::replicated);
      Board::move(addends, whole);
      CHECK(Board::draw(whole) == sum);
      Board::fill(whole, Row(kBlocks, 0.0F));
      Board::move(apart, whole);
      CHECK(Board::draw(whole) == sum);
      CHECK_THROWS_AS(redistribute(apart, reduced, kUnit), Error);
      Board::move(addends, addends.viewed_as(Placement::in_last_group));
      CHECK(Board::draw(addends.viewed_as(Placement::in_last_group)) ==
            (mesh.is_last_group() ? mine(sum) : mine(addend)));
    }
  }
}
