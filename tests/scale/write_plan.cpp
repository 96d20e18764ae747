// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// write_plan.cpp: writes what `plan` says of a deck on a cluster, for simulated_ranks (simulate.cpp), which cannot link
// libraries that use another MPI.
//   write_plan DECK RANKS RANKS_PER_NODE GBIT MEMORY TERAFLOPS STAGE > PLAN
// PLAN has a line per unit, row of a unit, number, and control call of a save: "unit SLOT NAME", "row EXTENT
// OVERWRITTEN NAME", "KEY VALUE", "save KIND BYTES". MEMORY: bytes per second of a rank, and TERAFLOPS: its products.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <Kokkos_Core.hpp>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/distributed/collective_time.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "src/distributed/chunks.hpp"

using namespace kozero;

namespace {

void write_table(const ParameterTable& table) {
  for (int unit = 0; unit < table.num_units(); ++unit) {
    std::cout << "unit " << table.unit(unit).slot << " " << table.unit(unit).name << "\n";
    for (const Parameter& row : table.rows_of(unit)) {
      std::cout << "row " << row.extent() << " " << row.overwritten << " " << row.name << "\n";
    }
  }
}

/// Messages that each rank sends and receives for arrays of one size. `chunks`: of each rank's shard.
class Messages {
 public:
  Messages(const distributed::NodeLayout& layout, std::vector<std::int64_t> chunks)
      : layout_(layout), chunks_(std::move(chunks)) {}

  /// Of a sum by a chain over the nodes: a rank receives the partial sums of its flow, which are those of the ranks
  /// with its index on all nodes, sends the next ones, and receives its own shard from the last node
  /// (chain_reduction.cpp).
  [[nodiscard]] std::int64_t of_chain(int rank) const {
    const int node = layout_.node(rank);
    const std::int64_t flow = of_flow(rank);
    return (node > 0 ? flow : 0) + flow + (node + 1 < layout_.num_nodes ? own(rank) : -own(rank));
  }
  /// Of a pairwise sum: every rank sends every other rank the addends of its shard (mpi_communicator.cpp).
  [[nodiscard]] std::int64_t of_pairwise(int rank) const {
    const std::int64_t all = std::accumulate(chunks_.begin(), chunks_.end(), std::int64_t{0});
    return all - own(rank) + own(rank) * (std::ssize(chunks_) - 1);
  }
  /// Of a gather: the ranks with one index on all nodes exchange their shards (group_communicator.cpp).
  [[nodiscard]] std::int64_t of_gather(int rank) const {
    return of_flow(rank) - own(rank) + own(rank) * (layout_.num_nodes - 1);
  }

 private:
  [[nodiscard]] std::int64_t own(int rank) const { return chunks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t of_flow(int rank) const {
    std::int64_t sum = 0;
    for (int node = 0; node < layout_.num_nodes; ++node) sum += own(layout_.rank(node, layout_.local(rank)));
    return sum;
  }

  distributed::NodeLayout layout_;
  std::vector<std::int64_t> chunks_;
};

std::vector<std::int64_t> chunks_of(const Partition& partition, std::int64_t extent) {
  std::vector<std::int64_t> chunks;
  for (int r = 0; r < partition.num_ranks(); ++r) chunks.push_back((partition.size(r) + extent - 1) / extent);
  return chunks;
}

/// Messages sent and received per step by the rank with the most.
std::int64_t requests_of(const plan::MemoryPlan& plan, const train::Settings& settings) {
  constexpr std::int64_t kFloat = sizeof(float);
  const distributed::NodeLayout layout{plan.num_ranks / settings.comm.ranks_per_node, settings.comm.ranks_per_node};
  const std::int64_t chunk_bytes = settings.comm.chunk_bytes;
  const std::int64_t most = distributed::chain_chunk_limit(chunk_bytes);
  std::vector<std::int64_t> of_rank(static_cast<std::size_t>(plan.num_ranks));
  for (const plan::SentArrays& arrays : plan.arrays) {
    const Partition partition(arrays.bytes / kFloat, plan.num_ranks);
    const std::int64_t if_all_owned = partition.largest() * plan.num_ranks * kFloat;
    const bool by_chain = distributed::chain_seconds(arrays.bytes, layout, most) <
                          distributed::pairwise_seconds(if_all_owned, layout, chunk_bytes);
    const std::int64_t of_chain = distributed::chain_chunk_bytes(arrays.bytes, layout, most) / kFloat;
    const std::int64_t of_pair = distributed::chunk_extent(chunk_bytes, plan.num_ranks - 1, kFloat);
    const Messages reduction(layout, chunks_of(partition, by_chain ? of_chain : of_pair));
    const Messages gather(layout, chunks_of(partition, partition.extent()));
    for (int r = 0; r < plan.num_ranks; ++r) {
      of_rank[static_cast<std::size_t>(r)] +=
          arrays.reductions * (by_chain ? reduction.of_chain(r) : reduction.of_pairwise(r)) +
          arrays.gathers * gather.of_gather(r);
    }
  }
  return *std::ranges::max_element(of_rank);
}

/// Rank 0 of `size` ranks that all pass what it passes. Writes each control call as "save KIND BYTES", with the bytes
/// that a rank passes.
class RecordedControl final : public distributed::Communicator {
 public:
  /// `elements`: the sum of all numbers that are not 0.
  RecordedControl(int size, std::int64_t elements) : size_(size), elements_(static_cast<std::uint64_t>(elements)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "recorded"; }
  distributed::Pending start_reduce_scatter(const float* /*full*/, float* /*shard*/, const Partition& /*partition*/,
                                            distributed::Fold /*fold*/) override {
    throw Error(Failure::internal, "a save sums no arrays");
  }
  distributed::Pending start_all_gather(const void* /*shard*/, void* /*full*/, const Partition& /*partition*/,
                                        std::size_t /*element_size*/) override {
    throw Error(Failure::internal, "a save gathers no arrays");
  }
  void barrier() override {}
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) override {
    write("gather", mine.size());
    std::vector<std::byte> all;
    for (int i = 0; i < size_; ++i) all.insert(all.end(), mine.begin(), mine.end());
    return all;
  }
  std::vector<std::uint64_t> sum_control(std::span<const std::uint64_t> mine) override {
    write("sum", mine.size_bytes());
    std::vector<std::uint64_t> sums(mine.begin(), mine.end());
    for (std::uint64_t& sum : sums) sum = sum == 0 ? 0 : elements_;
    return sums;
  }
  std::string broadcast_control(const std::string& bytes) override {
    write("broadcast", bytes.size());
    return bytes;
  }

 private:
  static void write(const char* kind, std::size_t bytes) { std::cout << "save " << kind << " " << bytes << "\n"; }

  int size_;
  std::uint64_t elements_;
};

/// The control calls of io::write_checkpoint for rank 0's shards, all zero, in a temporary folder.
void write_save(const ParameterTable& table, int ranks) {
  const ShardLayout shards(table, ranks, 0);
  const std::vector<float> zeros(static_cast<std::size_t>(shards.extent()));
  io::CheckpointContents contents;
  contents.record.model = "{}";
  for (const char* group : {io::kParameterGroup, "optimizer/exp_avg", "optimizer/exp_avg_sq"}) {
    auto& ranges = contents.groups.emplace_back(io::TensorGroup<const float>{group, {}}).ranges;
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const Partition& partition = shards.partition(unit);
      const auto extent = static_cast<std::size_t>(partition.size(0));
      ranges.push_back({unit, partition.begin(0), HostVector<const float>(zeros.data(), extent)});
    }
  }
  std::string name = (std::filesystem::temp_directory_path() / "kozero-scale-XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr, "write_plan: no temporary folder");
  RecordedControl control(ranks, table.num_stored());
  io::write_checkpoint(control, name + "/step_000000001", table, contents);
  std::filesystem::remove_all(name);
}

void write_numbers(const train::Settings& settings, const plan::MemoryPlan& plan, const plan::StepTime& time) {
  const auto write = [](const std::string& key, auto value) { std::cout << key << " " << value << "\n"; };
  write("stage", settings.zero.stage);
  write("micro_steps", settings.batch.micro_steps);
  write("prefetch_units", settings.zero.prefetch_units);
  write("overlap", settings.zero.overlap);
  write("chunk_bytes", settings.comm.chunk_bytes);
  write("under_way", settings.comm.under_way);
  write("passes_s", time.products + time.streams);
  write("update_s", time.update);
  write("step_s", time.total());
  write("communication_s", time.communication);
  write("calls", plan.sent.calls);
  write("requests", requests_of(plan, settings));
  write("bytes_sent", plan.sent.all);
  for (const Memory category : {Memory::parameters, Memory::gradients, Memory::gathered, Memory::communication}) {
    write("memory_" + std::string(kMemoryNames[static_cast<std::size_t>(category)]), plan.of(category));
  }
}

void write_plan(char** arguments) {
  const int ranks = std::atoi(arguments[2]);
  const int ranks_per_node = std::atoi(arguments[3]);
  const double link = std::atof(arguments[4]) * 1e9 / 8.0 / ranks_per_node;
  const io::Deck deck = io::read_deck(
      arguments[1], {std::string("zero.stage=") + arguments[7], "train.global_batch=" + std::to_string(ranks)});
  train::Settings settings = train::settings_of(deck, ranks, 0, 0);
  settings.comm.ranks_per_node = ranks_per_node;
  const plan::MemoryPlan plan = plan::memory_plan(settings, "mpi", ranks);
  const plan::Rates rates = plan::with_given_rates(
      {}, {.products = 1e12 * std::atof(arguments[6]), .memory = std::atof(arguments[5]), .link = link});
  std::cout.precision(std::numeric_limits<double>::max_digits10);
  const plan::PlannedEngine engine(settings);
  write_table(engine->parameters());
  write_save(engine->parameters(), ranks);
  write_numbers(settings, plan, plan::step_time(settings, plan, rates));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 8) {
    std::cerr << "usage: write_plan DECK RANKS RANKS_PER_NODE GBIT MEMORY TERAFLOPS STAGE\n";
    return 2;
  }
  const Kokkos::ScopeGuard kokkos;
  try {
    write_plan(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
