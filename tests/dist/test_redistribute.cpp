// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_redistribute.cpp: what each rank holds before and after every redistribution.
// Blocks of 64 equal elements are drawn as one number; the array is 5 blocks. On 2 ranks slices are 3 and 2 blocks:
//   Partial      rank 0:  1  2  3  4  5       Replicated   rank 0: 11 22 33 44 55      Sharded   rank 0: 11 22 33
//                rank 1: 10 20 30 40 50                    rank 1: 11 22 33 44 55                rank 1:          44 55
// On 3 ranks slices are 2, 2 and 1 blocks; on 4 they are 2, 2, 1 and none; on 7 there are 1 each, then none.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/dist/distributed_array.hpp>
#include <kozero/dist/make_communicator.hpp>

#include <cmath>

#include <support/nccl_double.hpp>

#include "rank_groups.hpp"

using namespace kozero;
using namespace kozero::dist;
using kozero::test::RankGroup;
using Row = std::vector<float>;

namespace {

constexpr int kBlocks = 5;

// Draws and fills the arrays of one rank.
class Board {
 public:
  Board(const RankGroup& group, const char* backend)
      : comm_(make_communicator(backend, group.handle(), ledger_)), partition_(kBlocks * kAlignment, group.size()) {}

  DistributedArray<float> array(Placement placement, const Row& row) {
    const auto local =
        ledger_.take<float>(Memory::workspace, "local", static_cast<std::int64_t>(row.size()) * kAlignment);
    return fill(DistributedArray<float>(*comm_, partition_, placement, local), row);
  }

  static DistributedArray<float> fill(DistributedArray<float> array, const Row& row) {
    const auto host = Kokkos::create_mirror_view(array.local());
    for (std::size_t i = 0; i < host.extent(0); ++i) host(i) = row[i / kAlignment];
    Kokkos::deep_copy(array.local(), host);
    return array;
  }

  static Row draw(const DistributedArray<float>& array) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array.local());
    Row row;
    for (std::size_t i = 0; i < host.extent(0); ++i) {
      if (i % kAlignment == 0) row.push_back(host(i));
      if (host(i) != row.back()) row.back() = std::nanf("");
    }
    return row;
  }

  // The blocks of `row` that are this rank's.
  [[nodiscard]] Row mine(const Row& row) const {
    const auto begin = partition_.begin(comm_->rank()) / kAlignment;
    const auto end = partition_.end(comm_->rank()) / kAlignment;
    return Row(row.begin() + begin, row.begin() + end);
  }

  // 1 2 3 4 5, times ten to the rank.
  [[nodiscard]] Row addend() const {
    Row row;
    for (int b = 1; b <= kBlocks; ++b) row.push_back(static_cast<float>(b * std::pow(10, comm_->rank())));
    return row;
  }

  // 11 22 33 44 55 on 2 ranks, 111 222 ... on 3.
  [[nodiscard]] Row sum() const {
    Row row;
    float ones = 0.0F;
    for (int r = 0; r < comm_->size(); ++r) ones += static_cast<float>(std::pow(10, r));
    for (int b = 1; b <= kBlocks; ++b) row.push_back(static_cast<float>(b) * ones);
    return row;
  }

  [[nodiscard]] Communicator& comm() const { return *comm_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }

 private:
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
  Partition partition_;
};

const Row kZeros(kBlocks, 0.0F);

// Partial to Sharded: each rank holds its slice of the sum.
void partial_to_sharded(Board& board) {
  const auto source = board.array(Placement::partial, board.addend());
  auto destination = board.array(Placement::sharded, board.mine(kZeros));
  redistribute(source, destination);
  CHECK(Board::draw(destination) == board.mine(board.sum()));
  CHECK(Board::draw(source) == board.addend());
}

// Sharded to Replicated: all ranks hold all slices.
void sharded_to_replicated(Board& board) {
  const auto source = board.array(Placement::sharded, board.mine({1, 2, 3, 4, 5}));
  auto destination = board.array(Placement::replicated, kZeros);
  redistribute(source, destination);
  CHECK(Board::draw(destination) == Row{1, 2, 3, 4, 5});
}

// Partial to Replicated: all ranks hold the sum.
void partial_to_replicated(Board& board) {
  const auto source = board.array(Placement::partial, board.addend());
  auto destination = board.array(Placement::replicated, kZeros);
  redistribute(source, destination);
  CHECK(Board::draw(destination) == board.sum());

  DistributedArray<float> in_place(board.comm(), board.partition(), Placement::replicated, source.local());
  redistribute(source, in_place);
  CHECK(Board::draw(in_place) == board.sum());
}

// Replicated to Sharded: each rank keeps its slice.
void replicated_to_sharded(Board& board) {
  const auto source = board.array(Placement::replicated, {1, 2, 3, 4, 5});
  auto destination = board.array(Placement::sharded, board.mine(kZeros));
  redistribute(source, destination);
  CHECK(Board::draw(destination) == board.mine({1, 2, 3, 4, 5}));
}

// Equal placements: a copy.
void same_placement(Board& board) {
  auto replicated = board.array(Placement::replicated, kZeros);
  redistribute(board.array(Placement::replicated, {1, 2, 3, 4, 5}), replicated);
  CHECK(Board::draw(replicated) == Row{1, 2, 3, 4, 5});
  auto sharded = board.array(Placement::sharded, board.mine(kZeros));
  redistribute(board.array(Placement::sharded, board.mine({1, 2, 3, 4, 5})), sharded);
  CHECK(Board::draw(sharded) == board.mine({1, 2, 3, 4, 5}));
}

// A slice may lie inside its full buffer.
void inside_full_buffer(Board& board) {
  const auto full = board.array(Placement::partial, board.addend());
  DistributedArray<float> own(board.comm(), board.partition(), Placement::sharded, full.my_slice());
  redistribute(full, own);
  CHECK(Board::draw(own) == board.mine(board.sum()));
  DistributedArray<float> gathered(board.comm(), board.partition(), Placement::replicated, full.local());
  redistribute(own, gathered);
  CHECK(Board::draw(gathered) == board.sum());
}

// Nothing becomes Partial, and extents must agree.
void refusals(Board& board) {
  const auto source = board.array(Placement::replicated, kZeros);
  auto partial = board.array(Placement::partial, kZeros);
  CHECK_THROWS_AS(redistribute(source, partial), Error);
  const Vector<float> longer(source.local().data(), source.local().extent(0) - 1);
  CHECK_THROWS_AS(DistributedArray<float>(board.comm(), board.partition(), Placement::replicated, longer), Error);
  const Partition other(board.partition().extent(), board.comm().size() + 1);
  CHECK_THROWS_AS(DistributedArray<float>(board.comm(), other, Placement::replicated, source.local()), Error);
}

}  // namespace

TEST_CASE("each rank holds what the destination's placement says", "[redistribute]") {
  const RankGroup group(0);
  const tests::NcclDouble nccl;
  for (const char* backend : {"auto", "mpi", "nccl"}) {
    CAPTURE(backend, group.size());
    Board board(group, backend);
    partial_to_sharded(board);
    sharded_to_replicated(board);
    partial_to_replicated(board);
    replicated_to_sharded(board);
    same_placement(board);
    inside_full_buffer(board);
    refusals(board);
  }
}
