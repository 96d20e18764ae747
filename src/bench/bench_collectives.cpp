// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_collectives.cpp: the time of reduce-scatter and all-gather of f32 on each back end that these ranks can use,
// beside MPI's own reduce_scatter_block and allgather. Each round runs all of them; medians of the slowest rank's
// seconds are printed. Shards are gathered in place, like updated weights; bf16 weights are sent as bytes, half as
// many. Each back end has its own arrays, so that none of them is in the caches because another back end has just read
// it.
//   bus bandwidth = S / t * (n - 1) / n        S bytes of the full array, n ranks (the definition of nccl-tests)
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/train/runtime.hpp>
#include "src/bench/bench.hpp"

namespace kozero::bench {
namespace {

struct Contender {
  std::string algorithm;
  std::unique_ptr<distributed::Communicator> comm;
  bool shares = false;
  Vector<float> full = {}, shard = {};
};

struct Row {
  double mib;
  std::string backend, algorithm;
  std::vector<double> reduce_s, gather_s;

  [[nodiscard]] double both() const { return median(reduce_s) + median(gather_s); }
};

struct BackEnd {
  std::string name, algorithm;
  bool shares = false;  ///< its arrays are from share()
  bool deterministic = true;
  bool exact = false;
};

/// The back ends of this build.
std::vector<BackEnd> back_ends() {
  std::vector<BackEnd> rows = {{"mpi", "pairwise messages, added in rank order"},
                               {"mpi", "over nodes, added in rank order", true},
                               {"shm", "shared windows, added in rank order"},
                               {"shm", "shared arrays, added in rank order", true}};
  const std::vector<BackEnd> of_gpus = {{"nccl", "one algorithm, run.deterministic"},
                                        {"nccl", "NCCL's choice", true, false},
                                        {"nccl", "comm.exact, added in rank order", false, true, true}};
  if (!kHostIsDevice) rows.insert(rows.begin(), of_gpus.begin(), of_gpus.end());
  return rows;
}

/// MPI's own collectives first, then every back end that has no unavailable_reason here.
std::vector<Contender> contenders_of(const distributed::Environment& environment, MemoryLedger& ledger) {
  std::vector<Contender> contenders;
  const distributed::Ranks ranks = environment.world();
  contenders.push_back(
      {"reduce_scatter_block, allgather",
       distributed::decorated(distributed::make_mpi_collectives(ranks), kHostIsDevice, ranks, ledger)});
  const bool over_nodes = distributed::ranks_per_node(ranks, {}) > 0;
  for (const auto& row : back_ends()) {
    try {
      distributed::CommunicatorOptions options;
      options.deterministic = row.deterministic;
      options.exact = row.exact;
      auto comm = distributed::make_communicator(row.name, ranks, ledger, options);
      if (row.name == "mpi" && row.shares != over_nodes) continue;
      contenders.push_back({row.algorithm, std::move(comm), row.shares});
    } catch (const Error& error) {
      if (environment.rank() == 0) std::cout << "left out: " << error.what() << "\n";
    }
  }
  return contenders;
}

class CollectivesBench {
 public:
  CollectivesBench(const distributed::Environment& environment, double largest_mib)
      : control_(distributed::make_control_communicator(environment.world(), 3600.0)),
        contenders_(contenders_of(environment, ledger_)) {
    const Partition partition = partition_of(largest_mib);
    for (auto& one : contenders_) {
      const auto take = [&](const char* label, std::int64_t extent) {
        return one.shares ? ledger_.take<float>(Memory::workspace, label, extent, *one.comm)
                          : ledger_.take<float>(Memory::workspace, label, extent);
      };
      one.full = take("bench full array", partition.extent());
      one.shard = take("bench shard", partition.largest());
    }
  }

  std::vector<Row> rows(double mib, int rounds) {
    std::vector<Row> rows;
    for (const auto& one : contenders_) rows.push_back({mib, one.comm->name(), one.algorithm, {}, {}});
    const Partition partition = partition_of(mib);
    for (int round = 0; round <= rounds; ++round) {  // the first makes what is made once; not counted
      for (std::size_t i = 0; i < contenders_.size(); ++i) {
        const auto& [algorithm, comm, shares, full, shard] = contenders_[i];
        const double reduce = slowest([&] { comm->reduce_scatter(full.data(), shard.data(), partition); });
        const float* own = full.data() + partition.begin(comm->rank());
        const double gather = slowest([&] { comm->all_gather(own, full.data(), partition, sizeof(float)); });
        if (round == 0) continue;
        rows[i].reduce_s.push_back(reduce);
        rows[i].gather_s.push_back(gather);
      }
    }
    return rows;
  }

 private:
  /// Equal shards, about `mib` MiB in total.
  [[nodiscard]] Partition partition_of(double mib) const {
    const std::int64_t multiple = 64 * control_->size();
    const auto elements = static_cast<std::int64_t>(mib * kMiB / sizeof(float));
    return {(elements + multiple - 1) / multiple * multiple, control_->size()};
  }

  template <class Work>
  double slowest(const Work& work) {
    contenders_.front().comm->barrier();
    const auto start = std::chrono::steady_clock::now();
    work();
    Device().fence("kozero::bench_collectives");
    const double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto all = distributed::from_all_ranks(*control_, mine);
    return *std::max_element(all.begin(), all.end());
  }

  MemoryLedger ledger_;
  std::unique_ptr<distributed::Communicator> control_;
  std::vector<Contender> contenders_;
};

double mib_of(std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; }

double bus_bandwidth(double mib, double seconds, int ranks) { return mib * kMiB / seconds * (ranks - 1) / ranks; }

/// Prints the rows of one size. The first is MPI's own, the reference of the last column.
void print(const std::vector<Row>& rows, int ranks) {
  for (const auto& row : rows) {
    const double reduce = median(row.reduce_s);
    const double gather = median(row.gather_s);
    std::cout << fmt::format("{:>6.5g} {:<10}{:<41}{:>11.3f}{:>9.2f}{:>11.3f}{:>9.2f}{:>9.2f}\n", row.mib, row.backend,
                             row.algorithm, 1e3 * reduce, bus_bandwidth(row.mib, reduce, ranks) / 1e9, 1e3 * gather,
                             bus_bandwidth(row.mib, gather, ranks) / 1e9, rows.front().both() / row.both());
  }
}

nlohmann::ordered_json json_of(const std::vector<Row>& rows, int ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    list.push_back({{"mib", row.mib},
                    {"ranks", ranks},
                    {"backend", row.backend},
                    {"reduce_scatter_s", median(row.reduce_s)},
                    {"all_gather_s", median(row.gather_s)},
                    {"over_mpi", rows.front().both() / row.both()}});
  }
  return list;
}

}  // namespace

void bench_collectives(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("bench collectives");
  std::vector<std::int64_t> sizes = {kMiB / 4, kMiB, 16 * kMiB, 64 * kMiB};
  int rounds = 9;
  JsonOutput json;
  parser.add("--size", sizes, "sizes of the array, with commas: 256KiB,16MiB")
      .delimiter(',')
      .default_text("256KiB,1MiB,16MiB,64MiB")
      .size(1024, std::int64_t{4} << 30)
      .type_name("SIZE,...");
  parser.add("--runs", rounds, "repetitions; medians are printed").type_name("N").positive();
  json.add_to(parser);
  parser.parse(arguments);
  const int ranks = environment.size();
  if (ranks == 1) {
    throw Error(
        Failure::deck,
        "bench collectives: one rank has nobody to send to; start it on several: ./kozero.sh -n 2 bench collectives",
        Error::Seen::by_all_ranks);
  }

  const train::Runtime runtime(0, environment);
  CollectivesBench bench(environment, mib_of(*std::ranges::max_element(sizes)));
  if (environment.rank() == 0) {
    std::cout << fmt::format(
        "f32 on {} ranks of {}; bus bandwidth in GB/s; the last column: how many times as fast as MPI's own, both "
        "collectives together\n{:>6} {:<10}{:<41}{:>20}{:>20}{:>9}\n",
        ranks, runtime.placement(), "MiB", "back end", "algorithm", "reduce-scatter ms", "all-gather ms", "ratio");
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::int64_t bytes : sizes) {
    const auto rows = bench.rows(mib_of(bytes), rounds);
    if (environment.rank() != 0) continue;
    print(rows, ranks);
    for (auto& row : json_of(rows, ranks)) all.push_back(row);
  }
  if (environment.rank() == 0) json.print({{"collectives", all}});
}

}  // namespace kozero::bench
