// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_nodes.cpp: mpi over several nodes, with consecutive ranks of this machine as nodes: bits, messages and bytes
// between nodes, and the cost model.
#include <mpi.h>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <map>
#include <thread>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include "src/distributed/nodes/node_layout.hpp"

#include "rank_groups.hpp"
#include "rank_values.hpp"

using namespace kozero;
using namespace kozero::distributed;
using kozero::test::RankGroup;
using kozero::test::same_bits;
using kozero::test::value_of;

namespace {

/// What this rank sent, counted by MPI_Isend below.
struct Sent {
  int ranks_per_node = 1;
  std::int64_t messages = 0;
  std::int64_t receives = 0;
  std::int64_t bytes_to_other_nodes = 0;
  std::int64_t largest = 0;
  std::map<int, std::int64_t> unanswered = {};  ///< per peer: sends less receives
  std::int64_t received_first = 0;              ///< receives from a peer to which as many were not sent before
};
Sent sent;

}  // namespace

/// Replaces MPI's function (the profiling interface), so that it counts the program's sends.
extern "C" int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int rank = 0, width = 0;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Type_size(type, &width);
  const std::int64_t bytes = std::int64_t{width} * count;
  ++sent.messages;
  ++sent.unanswered[to];
  sent.largest = std::max(sent.largest, bytes);
  if (rank / sent.ranks_per_node != to / sent.ranks_per_node) sent.bytes_to_other_nodes += bytes;
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

extern "C" int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  ++sent.receives;
  sent.received_first += sent.unanswered[from]-- <= 0;
  return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
}

namespace {

CommunicatorOptions nodes_of(int ranks, std::int64_t chunk_bytes) {
  CommunicatorOptions options;
  options.timeout_s = 60.0;
  options.chunk_bytes = chunk_bytes;
  options.ranks_per_node = ranks;
  return options;
}

/// The divisors of n: ranks per node.
std::vector<int> node_sizes(int n) {
  std::vector<int> sizes;
  for (int p = 1; p < n; ++p) {
    if (n % p == 0) sizes.push_back(p);
  }
  return sizes;
}

std::int64_t total(Communicator& comm, std::int64_t value) {
  std::int64_t sum = 0;
  for (const std::int64_t one : from_all_ranks(comm, value)) sum += one;
  return sum;
}

/// One reduction of addends in shared memory: its arrays, and the number of wrong elements of its result.
class Sum {
 public:
  Sum(Communicator& comm, Vector<float> full, const Partition& partition, Fold fold, int seed)
      : comm_(comm), full_(slice(full, 0, partition.extent())), partition_(partition), fold_(fold), seed_(seed) {
    const std::int64_t extent = partition.extent();
    const auto mine = static_cast<std::size_t>(partition_.size(comm.rank()));
    for (std::int64_t i = 0; i < extent; ++i) full_(static_cast<std::size_t>(i)) = value_of(comm.rank() + seed, i);
    for (std::size_t i = 0; i < mine; ++i) apart_.push_back(value_of(41, static_cast<std::int64_t>(i)));
    shard_ = fold.onto ? apart_.data() : full_.data() + partition_.begin(comm.rank());
    pending_ = comm.start_reduce_scatter(full_.data(), shard_, partition_, fold);
  }

  std::int64_t wrong() {
    comm_.wait(pending_);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < partition_.size(comm_.rank()); ++i) {
      const std::int64_t at = partition_.begin(comm_.rank()) + i;
      float sum = fold_.onto ? value_of(41, i) + value_of(seed_, at) : value_of(seed_, at);
      for (int r = 1; r < fold_.num_ranks(comm_.size()); ++r) sum += value_of(r + seed_, at);
      wrong += !same_bits(shard_[i], sum);
    }
    comm_.wait_until_reusable(pending_);
    return wrong;
  }

 private:
  Communicator& comm_;
  Vector<float> full_;
  Partition partition_;
  Fold fold_;
  int seed_;
  std::vector<float> apart_;
  float* shard_;
  Pending pending_;
};

/// The number of wrong elements after `rounds` gathers into one array, each started after the previous one has arrived.
/// In place, shards are written once no rank reads the array any more.
std::int64_t wrong_gathers(Communicator& comm, const Vector<float>& full, std::int64_t extent, bool in_place) {
  constexpr int kRounds = 8;
  const Partition partition(extent, comm.size());
  const auto mine = static_cast<std::size_t>(partition.size(comm.rank()));
  std::vector<std::vector<float>> shards(kRounds, std::vector<float>(mine));
  const auto value = [](int round, std::int64_t i) { return static_cast<float>(1000 * round + i); };
  std::int64_t wrong = 0;
  Pending pending{Collective::all_gather, 0};
  for (int round = 0; round < kRounds; ++round) {
    if (in_place && round > 0) comm.wait_until_reusable(pending);
    float* const own =
        in_place ? full.data() + partition.begin(comm.rank()) : shards[static_cast<std::size_t>(round)].data();
    for (std::size_t i = 0; i < mine; ++i) {
      own[i] = value(round, partition.begin(comm.rank()) + static_cast<std::int64_t>(i));
    }
    pending = comm.start_all_gather(own, full.data(), partition, sizeof(float));
    if ((round + comm.rank()) % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.wait(pending);
    for (std::int64_t i = 0; i < extent; ++i) wrong += full.data()[i] != value(round, i);
  }
  comm.wait_until_reusable(pending);
  return wrong;
}

}  // namespace

TEST_CASE("ranks numbered node by node have a layout, others have none", "[nodes]") {
  const RankGroup group(0);
  const int n = group.size();
  CHECK(node_layout(group.ranks(), 0).ranks_per_node == n);  // this machine
  for (const int p : node_sizes(n)) {
    const NodeLayout layout = node_layout(group.ranks(), p);
    CHECK(layout.num_nodes == n / p);
    CHECK(layout.rank(layout.node(group.rank()), layout.local(group.rank())) == group.rank());
  }
  if (n == 1) return;
  CHECK(node_layout(group.ranks(), n - 1).num_nodes == (n == 2 ? 2 : 0));
  MemoryLedger ledger;
  std::vector<std::string> notices;
  CommunicatorOptions options = nodes_of(n - 1, 4096);
  options.notice = [&](const std::string& line) { notices.push_back(line); };
  const auto comm = make_communicator("mpi", group.ranks(), ledger, options);
  CHECK(notices.size() == (group.rank() == 0 && n > 2 ? 1 : 0));
  CHECK(comm->description() == (n > 2 ? "mpi" : "mpi (2 nodes of 1 rank)"));
}

TEST_CASE("a chain over nodes adds in rank order, with several reductions under way", "[nodes]") {
  const RankGroup group(0);
  for (const int p : node_sizes(group.size())) {
    MemoryLedger ledger;
    const auto comm = make_communicator("mpi", group.ranks(), ledger, nodes_of(p, 4096));
    constexpr std::int64_t kLargest = 5000;
    const auto shared = ledger.take<float>(Memory::workspace, "addends", 3 * kLargest, *comm);
    std::int64_t wrong = 0;
    for (const std::int64_t extent : {std::int64_t{1}, std::int64_t{65}, std::int64_t{1000}, kLargest}) {
      for (int ranks = 1; ranks <= group.size(); ++ranks) {
        for (const bool onto : {false, true}) {
          for (const int owners : {group.size(), p, 1}) {  // owners: all ranks, the last node's, the last rank
            const Fold fold{ranks, onto};
            const Partition partition(extent, group.size(), owners);
            Sum first(*comm, slice(shared, 0, kLargest), partition, fold, 0);
            Sum second(*comm, slice(shared, kLargest, kLargest), Partition(kLargest, group.size()), {}, 50);
            const std::int64_t of_first = first.wrong();
            Sum third(*comm, slice(shared, 2 * kLargest, kLargest), partition, {ranks, !onto}, 100);
            CAPTURE(p, group.size(), extent, ranks, onto, owners);
            CHECK(of_first == 0);
            wrong += second.wrong();
            CHECK(third.wrong() == 0);
          }
        }
      }
    }
    CHECK(wrong == 0);
    if (p > 1)
      CHECK(comm->description() ==
            "mpi (" + std::to_string(group.size() / p) + " nodes of " + std::to_string(p) + " ranks)");
  }
}

TEST_CASE("gathers in shared memory are whole, and a later one does not overtake a peer's copy", "[nodes]") {
  const RankGroup group(0);
  for (const int p : node_sizes(group.size())) {
    MemoryLedger ledger;
    CommunicatorOptions options = nodes_of(p, 4096);
    options.message_bytes = 100'000;
    const auto comm = make_communicator("mpi", group.ranks(), ledger, options);
    CHECK(comm->shares_gathered() == (p > 1));
    constexpr std::int64_t kLargest = (1 << 20) + 17;  // its copies take long enough for other calls to overtake them
    const auto shared = ledger.take<float>(Memory::workspace, "whole", kLargest, *comm);
    for (const std::int64_t extent : {std::int64_t{1}, std::int64_t{65}, kLargest}) {
      for (const bool in_place : {false, true}) {
        CAPTURE(p, group.size(), extent, in_place);
        CHECK(wrong_gathers(*comm, shared, extent, in_place) == 0);
      }
    }
  }
}

TEST_CASE("the partial sum goes from each node to the next once, and a shard goes to each node once", "[nodes]") {
  const RankGroup group(0);
  const int n = group.size();
  for (const int p : node_sizes(n)) {
    const int num_nodes = n / p;
    const std::int64_t extent = 64 * 50 * n;
    const std::int64_t bytes = 4 * extent;
    sent.ranks_per_node = p;
    MemoryLedger ledger;
    const auto comm = make_communicator("mpi", group.ranks(), ledger, nodes_of(p, 16384));
    const auto shared = ledger.take<float>(Memory::workspace, "addends", extent, *comm);
    const Partition partition(extent, n);
    std::vector<float> shard(static_cast<std::size_t>(partition.size(group.rank())), 1.0F);
    const auto traffic = [&](const auto& collective) {
      sent = {.ranks_per_node = p};
      collective();
      const std::int64_t between = total(*comm, sent.bytes_to_other_nodes);
      CAPTURE(p, n);
      CHECK(sent.largest <= 16384 / 4);
      return between;
    };
    // From each node to the next, and from the last node to owners on the others.
    const std::int64_t results = bytes / num_nodes * (num_nodes - 1);
    CHECK(traffic([&] { comm->reduce_scatter(shared.data(), shard.data(), partition); }) ==
          bytes * (num_nodes - 1) + results);
    // The accumulators of all nodes but the first travel too.
    CHECK(traffic([&] { comm->reduce_scatter(shared.data(), shard.data(), partition, {.onto = true}); }) ==
          bytes * (num_nodes - 1) + 2 * results);
    const std::int64_t chunk = chain_chunk_bytes(bytes, {num_nodes, p}, 4096);
    const std::int64_t chunks = (4 * partition.largest() + chunk - 1) / chunk;
    // A flow forwards each of its items except those that end in this rank's own shard. The owner sends each of its
    // chunks unless it is on node 0, and receives its sum unless it is on the last node.
    const int node = group.rank() / p;
    const bool is_first = node == 0, is_last = node == num_nodes - 1;
    const std::int64_t items = chunks * num_nodes;
    CHECK(sent.messages == items - (is_last ? chunks : 0) + (is_first ? 0 : chunks));
    CHECK(sent.receives == items - (is_first ? chunks : 0) + (is_last ? 0 : chunks));
    // No rank adds after the last rank with an addend.
    CHECK(traffic([&] { comm->reduce_scatter(shared.data(), shard.data(), partition, {.ranks = p}); }) == results);
    // If only ranks of the last node own shards, no sum is sent back; the initial values go to the first node.
    const Partition of_last(extent, n, p);
    std::vector<float> large(static_cast<std::size_t>(of_last.size(group.rank())), 1.0F);
    CHECK(traffic([&] { comm->reduce_scatter(shared.data(), large.data(), of_last); }) == bytes * (num_nodes - 1));
    const std::int64_t own_chunk = chain_chunk_bytes(bytes, {num_nodes, p}, 4096);
    const std::int64_t chunks_of_last = (4 * of_last.largest() + own_chunk - 1) / own_chunk;
    CHECK(sent.messages == (is_last ? 0 : chunks_of_last));
    CHECK(sent.receives == (is_first ? 0 : chunks_of_last));
    CHECK(traffic([&] { comm->reduce_scatter(shared.data(), large.data(), of_last, {.onto = true}); }) ==
          bytes * (num_nodes - 1) + bytes);
    sent = {.ranks_per_node = p};
    comm->all_gather(shard.data(), shared.data(), partition, sizeof(float));
    CHECK(total(*comm, sent.bytes_to_other_nodes) == bytes * (num_nodes - 1));
    CHECK(sent.messages == num_nodes - 1);
  }
}

// Otherwise the two directions of a TCP connection take turns (src/distributed/group_communicator.hpp).
TEST_CASE("in a pairwise exchange a rank sends to each peer before it receives from it", "[nodes]") {
  const RankGroup group(0);
  const int n = group.size();
  MemoryLedger ledger;
  const auto comm = make_communicator("mpi", group.ranks(), ledger, nodes_of(n, 4096));
  const std::int64_t extent = 64 * 50 * n;
  const auto full = ledger.take<float>(Memory::workspace, "full", extent);
  const auto shard = ledger.take<float>(Memory::workspace, "shard", extent / n);
  sent = {.ranks_per_node = n};
  comm->reduce_scatter(full.data(), shard.data(), Partition(extent, n));
  CHECK((sent.messages >= n - 1 && sent.messages == sent.receives && sent.received_first == 0));
  sent = {.ranks_per_node = n};
  comm->all_gather(shard.data(), full.data(), Partition(extent, n), sizeof(float));
  CHECK((sent.messages == n - 1 && sent.receives == n - 1 && sent.received_first == 0));
}

TEST_CASE("arrays for which a node has no room are exchanged pairwise by all ranks", "[nodes]") {
  const RankGroup group(0);
  const int n = group.size();
  if (n < 4 || n % 2 != 0) return;
  MemoryLedger ledger;
  std::vector<std::string> notices;
  CommunicatorOptions options = nodes_of(n / 2, 4096);
  options.shm_free_bytes = [&] { return std::int64_t{group.rank() < n / 2 ? 1 << 30 : 0}; };
  options.notice = [&](const std::string& line) { notices.push_back(line); };
  const auto comm = make_communicator("mpi", group.ranks(), ledger, options);
  CHECK(comm->share("weights", 1000) == nullptr);
  CHECK(comm->share("gradients", 1000) == nullptr);
  CHECK(notices.size() == (group.rank() == 0 ? 1 : 0));
  const auto own = ledger.take<float>(Memory::workspace, "own", 1000);
  for (const bool onto : {false, true}) CHECK(Sum(*comm, own, Partition(1000, n), {.onto = onto}, 0).wrong() == 0);
  CHECK(comm->description().find("pairwise") != std::string::npos);
}

TEST_CASE("the cost model takes the chain where its bytes are fewer, and pairwise messages where nodes are few") {
  constexpr std::int64_t kUnit = 200'000'000;
  constexpr std::int64_t kBuffers = 4 << 20;
  const auto chain_wins = [](const NodeLayout& layout, std::int64_t bytes) {
    return chain_seconds(bytes, layout, kBuffers / 4) < pairwise_seconds(bytes, layout, kBuffers);
  };
  CHECK_FALSE(chain_wins({2, 2}, kUnit));
  CHECK(chain_wins({2, 4}, kUnit));
  CHECK_FALSE(chain_wins({4, 1}, kUnit));
  CHECK(chain_wins({8, 8}, kUnit));
  CHECK(chain_wins({128, 8}, kUnit));
  CHECK(chain_wins({1024, 1}, kUnit));
  CHECK_FALSE(chain_wins({8, 1}, 10'000));
  // docs/communication.md, its rows of 16, 256 and 4,096 ranks in ms.
  const auto ms = [](double seconds) { return Catch::Approx(1e3 * seconds).epsilon(0.01); };
  CHECK(65.4 == ms(pairwise_seconds(kUnit, {2, 8}, kBuffers)));
  CHECK(24.6 == ms(chain_seconds(kUnit, {2, 8}, kBuffers / 4)));
  CHECK(148.5 == ms(pairwise_seconds(kUnit, {32, 8}, kBuffers)));
  CHECK(18.6 == ms(chain_seconds(kUnit, {32, 8}, kBuffers / 4)));
  CHECK(520.9 == ms(pairwise_seconds(kUnit, {512, 8}, kBuffers)));
  CHECK(25.2 == ms(chain_seconds(kUnit, {512, 8}, kBuffers / 4)));
  // The table's requests per rank: pairwise with 4 MiB of buffers; items in and out of a flow, and its own shard's.
  const auto requests = [](const NodeLayout& layout) {
    const std::int64_t n = layout.num_nodes * layout.ranks_per_node;
    const std::int64_t shard = Partition(kUnit / 4, static_cast<int>(n)).largest() * 4;
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    const std::int64_t pairwise = 2 * (n - 1) * ceil_div(shard, kBuffers / (n - 1) / 256 * 256);
    const std::int64_t chunks = ceil_div(shard, chain_chunk_bytes(kUnit, layout, kBuffers / 4));
    return std::pair{pairwise, 2 * chunks * (layout.num_nodes + 1)};
  };
  CHECK(requests({2, 8}) == std::pair<std::int64_t, std::int64_t>{1350, 384});
  CHECK(requests({128, 8}) == std::pair<std::int64_t, std::int64_t>{98208, 2064});
  CHECK(requests({512, 8}) == std::pair<std::int64_t, std::int64_t>{393120, 4104});
  // The optimum of (S / c + N) (a + c / b), for all flows of a node together.
  const NodeLayout layout{128, 8};
  const auto chunk = static_cast<double>(8 * chain_chunk_bytes(kUnit, layout, kBuffers));
  CHECK(chunk ==
        Catch::Approx(std::sqrt(kUnit * NodeLink().message_s * NodeLink().bytes_per_second / 128)).epsilon(0.02));
}
