// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_collectives.cpp: reduce-scatter and all-gather of f32 on each back end that these ranks can use, beside MPI's
// own reduce_scatter_block and allgather. Each round runs all of them once; a round's time is the slowest rank's. Sums
// go to an array apart from the addends; shards are gathered in place, like updated weights. Each back end has its own
// arrays, so that none of them is in the caches because another back end has just read it.
//   algbw = S / t      busbw = algbw (n - 1) / n      S bytes of the full array, t the median time, n ranks
// These definitions, the columns and the fields of --json are those of nccl-tests (reduce_scatter_perf and
// all_gather_perf; its t is a mean). #wrong: elements of all ranks that differ from the result; addends are small
// integers, so that sums are exact in any order.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

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

using distributed::Collective;
using Json = nlohmann::ordered_json;

/// How a back end reduces, and how it gathers.
struct Algorithms {
  std::string reduction, gather;

  [[nodiscard]] const std::string& of(Collective collective) const {
    return collective == Collective::reduce_scatter ? reduction : gather;
  }
};

struct Contender {
  Algorithms algorithms;
  std::unique_ptr<distributed::Communicator> comm;
  bool shares = false;
  Vector<float> full = {}, shard = {};
};

struct BackEnd {
  std::string name;
  Algorithms algorithms;
  bool shares = false;  ///< its arrays are from share()
  bool deterministic = true;
  bool exact = false;
};

/// The back ends of this build.
std::vector<BackEnd> back_ends() {
  const Algorithms exact = {"comm.exact, added in rank order", "comm.exact"};
  std::vector<BackEnd> rows = {{"mpi", {"pairwise messages, added in rank order", "pairwise messages"}},
                               {"mpi", {"over nodes, added in rank order", "over nodes"}, true},
                               {"shm", {"shared windows, added in rank order", "shared windows"}},
                               {"shm", {"shared arrays, added in rank order", "shared arrays"}, true},
                               {"ring", {"added around the ring", "around the ring"}},
                               {"ring", exact, false, true, true}};
  const std::vector<BackEnd> of_gpus = {
      {"nccl", {"one algorithm, run.deterministic", "one algorithm, run.deterministic"}},
      {"nccl", {"NCCL's choice", "NCCL's choice"}, true, false},
      {"nccl", exact, false, true, true}};
  if (!kHostIsDevice) rows.insert(rows.begin(), of_gpus.begin(), of_gpus.end());
  return rows;
}

/// MPI's own collectives first, then the back ends `names` (none: all) that have no unavailable_reason here.
std::vector<Contender> contenders_of(const distributed::Environment& environment, MemoryLedger& ledger,
                                     const std::vector<std::string>& names) {
  std::vector<Contender> contenders;
  const distributed::Ranks ranks = environment.world();
  contenders.push_back(
      {{"reduce_scatter_block", "allgather"},
       distributed::decorated(distributed::make_mpi_collectives(ranks), kHostIsDevice, ranks, ledger)});
  const bool over_nodes = distributed::ranks_per_node(ranks, {}) > 0;
  for (const auto& row : back_ends()) {
    if (!names.empty() && std::ranges::find(names, row.name) == names.end()) continue;
    try {
      distributed::CommunicatorOptions options;
      options.deterministic = row.deterministic;
      options.exact = row.exact;
      auto comm = distributed::make_communicator(row.name, ranks, ledger, options);
      if (row.name == "mpi" && row.shares != over_nodes) continue;
      contenders.push_back({row.algorithms, std::move(comm), row.shares});
    } catch (const Error& error) {
      if (environment.rank() == 0) std::cout << "left out: " << error.what() << "\n";
    }
  }
  return contenders;
}

/// Integers from 0 to 1023: sums over up to 2^14 ranks are exact in f32, in any order.
KOKKOS_INLINE_FUNCTION float addend(int rank, std::int64_t i) {
  return static_cast<float>((i * 37 + i / 1021 + std::int64_t{rank} * 101) % 1024);
}

/// Element i of the sum, or of what all gather.
struct Expected {
  int ranks;  ///< 0: gathered

  [[nodiscard]] KOKKOS_INLINE_FUNCTION float operator()(std::int64_t i) const {
    float sum = addend(0, i);
    for (int r = 1; r < ranks; ++r) sum += addend(r, i);
    return sum;
  }
};

void fill(const Vector<float>& array, std::int64_t first, std::int64_t end, int rank) {
  Kokkos::parallel_for(
      "kozero::bench_collectives::fill", Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(first, end),
      KOKKOS_LAMBDA(const std::int64_t i) { array(i) = addend(rank, i); });
}

/// How many of the first `extent` elements differ from the expected ones from `first` on.
std::int64_t num_wrong(const Vector<float>& array, std::int64_t extent, std::int64_t first, Expected expected) {
  std::int64_t wrong = 0;
  Kokkos::parallel_reduce(
      "kozero::bench_collectives::num_wrong", Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, extent),
      KOKKOS_LAMBDA(const std::int64_t i, std::int64_t& sum) { sum += array(i) != expected(first + i) ? 1 : 0; },
      wrong);
  return wrong;
}

/// The times of a collective on a back end, of all rounds.
struct Row {
  Collective collective;
  std::int64_t bytes;  ///< of the full array
  int ranks;
  std::string backend, algorithm;
  std::vector<double> seconds = {};  ///< ascending
  std::int64_t wrong = 0;

  [[nodiscard]] bool reduces() const { return collective == Collective::reduce_scatter; }
  [[nodiscard]] std::int64_t count() const { return bytes / static_cast<std::int64_t>(sizeof(float)) / ranks; }
  [[nodiscard]] double algbw() const { return 1e-9 * static_cast<double>(bytes) / median(seconds); }
  [[nodiscard]] double busbw() const { return algbw() * (ranks - 1) / ranks; }
  [[nodiscard]] double mean() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  }
  [[nodiscard]] double percentile(int percent) const {
    const auto n = std::ssize(seconds);
    return seconds[static_cast<std::size_t>((n * percent + 99) / 100 - 1)];
  }
};

class CollectivesBench {
 public:
  CollectivesBench(const distributed::Environment& environment, std::int64_t largest,
                   const std::vector<std::string>& names)
      : control_(distributed::make_control_communicator(environment.world(), 3600.0)),
        contenders_(contenders_of(environment, ledger_, names)) {
    const Partition partition = partition_of(largest);
    for (auto& one : contenders_) {
      const auto take = [&](const char* label, std::int64_t extent) {
        return one.shares ? ledger_.take<float>(Memory::workspace, label, extent, *one.comm)
                          : ledger_.take<float>(Memory::workspace, label, extent);
      };
      one.full = take("bench full array", partition.extent());
      one.shard = take("bench shard", partition.largest());
    }
  }

  /// A row per back end. The first round makes what is made once; it is not counted.
  std::vector<Row> rows(Collective collective, std::int64_t bytes, int rounds) {
    const Partition partition = partition_of(bytes);
    std::vector<Row> rows;
    for (const auto& one : contenders_) {
      rows.push_back({collective, partition.extent() * static_cast<std::int64_t>(sizeof(float)), control_->size(),
                      one.comm->name(), one.algorithms.of(collective)});
    }
    for (const auto& one : contenders_) prepare(one, collective, partition);
    for (int round = 0; round <= rounds; ++round) {
      for (std::size_t i = 0; i < contenders_.size(); ++i) {
        const double seconds = slowest([&] { call(contenders_[i], collective, partition); });
        if (round > 0) rows[i].seconds.push_back(seconds);
      }
    }
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      std::ranges::sort(rows[i].seconds);
      const auto wrong = distributed::from_all_ranks(*control_, wrong_of(contenders_[i], collective, partition));
      rows[i].wrong = std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0});
    }
    return rows;
  }

 private:
  /// Equal shards, at least `bytes` bytes in total.
  [[nodiscard]] Partition partition_of(std::int64_t bytes) const {
    const std::int64_t multiple = kAlignment * control_->size();
    const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
    return {(elements + multiple - 1) / multiple * multiple, control_->size()};
  }

  /// This rank's addends, or its shard among elements that must all be received.
  static void prepare(const Contender& one, Collective collective, const Partition& partition) {
    const int rank = one.comm->rank();
    const bool gathers = collective == Collective::all_gather;
    Kokkos::deep_copy(one.full, -1.0F);
    Kokkos::deep_copy(one.shard, -1.0F);
    fill(one.full, gathers ? partition.begin(rank) : 0, gathers ? partition.end(rank) : partition.extent(),
         gathers ? 0 : rank);
    Device().fence("kozero::bench_collectives::prepare");
  }

  static void call(const Contender& one, Collective collective, const Partition& partition) {
    if (collective == Collective::reduce_scatter) {
      return one.comm->reduce_scatter(one.full.data(), one.shard.data(), partition);
    }
    one.comm->all_gather(one.full.data() + partition.begin(one.comm->rank()), one.full.data(), partition,
                         sizeof(float));
  }

  static std::int64_t wrong_of(const Contender& one, Collective collective, const Partition& partition) {
    const int rank = one.comm->rank();
    return collective == Collective::all_gather
               ? num_wrong(one.full, partition.extent(), 0, {0})
               : num_wrong(one.shard, partition.size(rank), partition.begin(rank), {one.comm->size()});
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

const char* name_of(Collective collective) {
  return collective == Collective::reduce_scatter ? "reduce_scatter" : "all_gather";
}

/// Prints the rows of one size. The first is MPI's own, the reference of the last column.
void print(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    std::cout << fmt::format("{:>10} {:>9} {:<10}{:<39}{:>9.1f} {:>7.3f} {:>7.3f} {:>6} {:>9.1f} {:>7.2f}\n", row.bytes,
                             row.count(), row.backend, row.algorithm, 1e6 * median(row.seconds), row.algbw(),
                             row.busbw(), row.wrong, 1e6 * row.percentile(99),
                             median(rows.front().seconds) / median(row.seconds));
  }
}

Json json_of(const Row& row, const Row& mpi) {
  const double mean = row.mean();
  double squares = 0.0;
  for (const double seconds : row.seconds) squares += (seconds - mean) * (seconds - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(row.seconds.size()));
  const std::string place = row.reduces() ? "out_of_place" : "in_place";
  Json json = {
      {"size", row.bytes}, {"count", row.count()},    {"type", "float"},    {"redop", row.reduces() ? "sum" : "none"},
      {"root", "-1"},      {"out_of_place", nullptr}, {"in_place", nullptr}};
  json[place] = {
      {"time", 1e6 * median(row.seconds)}, {"alg_bw", row.algbw()}, {"bus_bw", row.busbw()}, {"nwrong", row.wrong}};
  json[place + "_per_iter"] = {
      {"min_us", 1e6 * row.seconds.front()}, {"max_us", 1e6 * row.seconds.back()}, {"avg_us", 1e6 * mean},
      {"p50_us", 1e6 * median(row.seconds)}, {"p95_us", 1e6 * row.percentile(95)}, {"p99_us", 1e6 * row.percentile(99)},
      {"stdev_us", 1e6 * deviation},         {"cv_pct", 1e2 * deviation / mean}};
  json["actual_iterations"] = row.seconds.size();
  json["experiment_name"] = name_of(row.collective);
  json["ranks"] = row.ranks;
  json["backend"] = row.backend;
  json["algorithm"] = row.algorithm;
  json["over_mpi"] = median(mpi.seconds) / median(row.seconds);
  return json;
}

struct Question {
  std::vector<std::int64_t> sizes = {kMiB / 4, kMiB, 16 * kMiB, 64 * kMiB};
  std::vector<std::string> names;
  int rounds = 9;
  JsonOutput json;

  explicit Question(const Arguments& arguments) {
    constexpr std::int64_t kLargest = std::int64_t{4} << 30;
    std::int64_t least = 1024;
    std::int64_t most = 256 * kMiB;
    std::int64_t factor = 4;
    OptionParser parser("bench collectives");
    const auto size = parser.add("--size", sizes, "sizes of the array, with commas: 256KiB,16MiB")
                          .delimiter(',')
                          .default_text("256KiB,1MiB,16MiB,64MiB")
                          .size_or_bytes(1024, kLargest)
                          .type_name("SIZE,...");
    auto minbytes = parser.add("--minbytes", least, "or all sizes from this one ...")
                        .default_text("1KiB")
                        .size_or_bytes(1024, kLargest)
                        .type_name("SIZE")
                        .excludes(size);
    auto maxbytes = parser.add("--maxbytes", most, "... up to this one ...")
                        .default_text("256MiB")
                        .size_or_bytes(1024, kLargest)
                        .type_name("SIZE")
                        .excludes(size);
    auto stepfactor = parser.add("--stepfactor", factor, "... each so many times as large as the one before")
                          .type_name("N")
                          .between(std::int64_t{2}, std::int64_t{1024})
                          .excludes(size);
    auto backends = distributed::backend_names();
    std::erase_if(backends, [](const std::string& name) {
      return std::ranges::none_of(back_ends(), [&](const BackEnd& row) { return row.name == name; });
    });
    parser.add("--backend", names, "back ends, with commas; MPI's own is always measured")
        .delimiter(',')
        .default_text("all")
        .one_of(backends)
        .type_name("NAME,...");
    parser.add("--runs", rounds, "rounds; medians and the 99th percentile are printed").type_name("N").positive();
    json.add_to(parser);
    parser.parse(arguments);
    if (!minbytes.is_given() && !maxbytes.is_given() && !stepfactor.is_given()) return;
    if (least > most) {
      throw Error(Failure::deck, "bench collectives: --minbytes is larger than --maxbytes", Error::Seen::by_all_ranks);
    }
    sizes.clear();
    for (; least <= most; least *= factor) sizes.push_back(least);
  }
};

}  // namespace

void bench_collectives(const distributed::Environment& environment, const Arguments& arguments) {
  const Question question(arguments);
  const int ranks = environment.size();
  if (ranks == 1) {
    throw Error(
        Failure::deck,
        "bench collectives: one rank has nobody to send to; start it on several: ./kozero.sh -n 2 bench collectives",
        Error::Seen::by_all_ranks);
  }

  const train::Runtime runtime(0, environment);
  CollectivesBench bench(environment, *std::ranges::max_element(question.sizes), question.names);
  Json results = Json::array();
  std::int64_t wrong = 0;
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    if (environment.rank() == 0) {
      std::cout << fmt::format(
          "{}{} of f32 on {} ranks (rank 0: {}); times in us, bandwidths in GB/s, ratio: times as fast as MPI's own\n"
          "{:>10} {:>9} {:<10}{:<39}{:>9} {:>7} {:>7} {:>6} {:>9} {:>7}\n",
          collective == Collective::reduce_scatter ? "" : "\n", name_of(collective), ranks, runtime.placement(), "size",
          "count", "back end", "algorithm", "time", "algbw", "busbw", "#wrong", "p99", "ratio");
    }
    for (const std::int64_t bytes : question.sizes) {
      const auto rows = bench.rows(collective, bytes, question.rounds);
      for (const Row& row : rows) wrong += row.wrong;
      if (environment.rank() != 0) continue;
      print(rows);
      for (const Row& row : rows) results.push_back(json_of(row, rows.front()));
    }
  }
  if (environment.rank() == 0) question.json.print({{"results", results}});
  if (wrong > 0) {
    throw Error(Failure::internal, fmt::format("bench collectives: {} wrong elements", wrong),
                Error::Seen::by_all_ranks);
  }
}

}  // namespace kozero::bench
