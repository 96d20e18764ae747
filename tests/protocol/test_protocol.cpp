// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_protocol.cpp: the sources of distributed and zero under ThreadSanitizer, with ranks that are threads of one
// process.
//   protocol_threads [--every K] [--first I] [--seed N] [--verbose]      every K-th case of all, from the I-th on
// The build compiles the sources once more for it (CMakeLists.txt). A case: stage x accumulation x
// micro-steps x overlap x prefetch x embedding (untied, tied, in blocks) x back end x ranks x idle ranks x precision.
// Its ranks sleep at random, gather from many arrays at once, run steps (one of them without an update), evaluate in
// between, and compare every weight and sum with its expected value. In some more cases a rank is late beyond the
// timeout. ThreadSanitizer reports accesses that the protocol does not order. Exit status 0: all as expected; 1: a
// wrong number; 66: a race.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include "src/distributed/back_ends.hpp"
#include "src/distributed/group_communicator.hpp"

#include "model_step.hpp"
#include "thread_mpi.hpp"

using namespace kozero;

// Kokkos' library defines this only for the default host space of its own build (CMakeLists.txt).
namespace Kokkos::Impl {
void hostspace_fence(const Serial& space) { space.fence("kozero::test::hostspace_fence"); }
}  // namespace Kokkos::Impl

namespace {

constexpr double kPatience = 60.0;  // seconds: comm.timeout_s if no rank is lost

struct Case {
  zero::Config config;
  test::Vocabulary vocabulary;
  std::string backend;  ///< "windows": shm without room for shared arrays; "ring": with comm.exact
  int ranks;
  int idle;  ///< idle ranks in a step's last micro-step
  bool bf16;

  [[nodiscard]] std::string name() const {
    return "stage " + std::to_string(config.stage) +
           (config.accumulation == zero::Accumulation::local ? ", local" : ", ordered") + ", " +
           std::to_string(config.micro_steps) + " micro-steps, " + (config.overlap ? "overlap" : "no overlap") +
           ", prefetch " + std::to_string(config.prefetch_units) +
           (vocabulary == test::Vocabulary::untied ? ", "
            : vocabulary == test::Vocabulary::tied ? ", tied, "
                                                   : ", in blocks, ") +
           backend + ", " + std::to_string(ranks) + " ranks, " + std::to_string(idle) + " of them idle, " +
           (bf16 ? "bf16" : "f32");
  }
  [[nodiscard]] test::Shape shape() const {
    return {vocabulary, config.micro_steps, idle, config.accumulation == zero::Accumulation::ordered};
  }
};

/// Sleeps around each part of each collective.
class SleepyCommunicator final : public distributed::CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;

  distributed::Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                            distributed::Fold fold) override {
    test::sleep_at_random();
    return CommunicatorDecorator::start_reduce_scatter(full, shard, partition, fold);
  }
  distributed::Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                                        std::size_t element_size) override {
    test::sleep_at_random();
    return CommunicatorDecorator::start_all_gather(shard, full, partition, element_size);
  }
  void wait(distributed::Pending pending) override {
    test::sleep_at_random();
    CommunicatorDecorator::wait(pending);
    test::sleep_at_random();
  }
};

std::unique_ptr<distributed::Communicator> connect(const Case& one, MPI_Comm world, MemoryLedger& ledger,
                                                   double timeout_s) {
  distributed::CommunicatorOptions options;
  options.timeout_s = timeout_s;
  options.chunk_bytes = 1024;    // several phases of windows per collective
  options.message_bytes = 1024;  // several messages per gather
  options.shm_free_bytes = [roomy = one.backend == "shm"] { return roomy ? std::int64_t{1} << 30 : 0; };
  options.notice = [](const std::string&) {};
  const distributed::Ranks ranks = distributed::ranks_of(world);
  options.exact = one.backend == "ring";  // otherwise its sums are in its own order
  auto inner = one.backend == "ring"  ? make_ring_communicator(ranks, ledger, options)
               : one.backend == "mpi" ? make_mpi_communicator(ranks, ledger, options)
                                      : make_shm_communicator(ranks, ledger, options);
  return std::make_unique<SleepyCommunicator>(std::move(inner));
}

/// Repeatedly starts the largest allowed number of gathers at once, each from different memory. Returns the first
/// problem, or "".
std::string gather_many_at_once(distributed::Communicator& comm, MemoryLedger& ledger) {
  constexpr std::int64_t kRounds = 3, kAtOnce = 16, kExtent = 64;
  const Partition cut(kExtent * comm.size(), comm.size());
  const auto shards = ledger.take<float>(Memory::parameters, "shards", kRounds * kAtOnce * kExtent, comm);
  const auto all = ledger.take<float>(Memory::gathered, "all", kAtOnce * kExtent * comm.size());
  const auto value = [](std::int64_t gather, int rank) { return static_cast<float>(gather * 10 + rank); };
  for (std::int64_t i = 0; i < kRounds * kAtOnce * kExtent; ++i) shards(i) = value(i / kExtent, comm.rank());
  for (std::int64_t round = 0; round < kRounds; ++round) {
    std::vector<distributed::Pending> started;
    for (std::int64_t i = 0; i < kAtOnce; ++i) {
      started.push_back(comm.start_all_gather(shards.data() + (round * kAtOnce + i) * kExtent,
                                              all.data() + i * kExtent * comm.size(), cut, sizeof(float)));
    }
    for (const auto& pending : started) comm.wait(pending);
    for (std::int64_t i = 0; i < kAtOnce * kExtent * comm.size(); ++i) {
      const auto rank = static_cast<int>(i / kExtent % comm.size());
      const std::int64_t gather = round * kAtOnce + i / kExtent / comm.size();
      if (all(i) != value(gather, rank)) return "gather " + std::to_string(gather) + " brought a wrong number";
    }
  }
  comm.barrier();
  return "";
}

/// A rank's work. Returns the first problem, or "".
template <class Scalar>
std::string take_steps(const Case& one, MPI_Comm world) {
  const auto table = test::units_of(one.vocabulary);
  MemoryLedger ledger;
  const auto comm = connect(one, world, ledger, kPatience);
  const std::string problem = gather_many_at_once(*comm, ledger);
  if (!problem.empty()) return problem;
  zero::ShardedState<Scalar> state(table, *comm, one.config, ledger);
  test::ModelStep<Scalar> model(table, *comm, state, one.shape());
  model.fill_weights();
  model.train(1, false);
  model.train(2, true);
  model.evaluate();
  model.reload_weights();
  model.reload_weights();
  model.train(3, false);
  model.evaluate();
  comm->barrier();
  return model.problem();
}

/// A rank's work if one rank is late beyond the timeout. Returns the problem or the error that ended the rank. As in a
/// process that main ends, memory that the rank passed to MPI is not freed, and late messages are still moved.
std::string lose_last_rank(const Case& one, MPI_Comm world, bool before_norm) {
  struct Rank {
    ParameterTable table;
    MemoryLedger ledger;
    std::unique_ptr<distributed::Communicator> comm;
    std::unique_ptr<zero::ShardedState<float>> state;
    std::unique_ptr<test::ModelStep<float>> model;
  };
  auto* rank = new Rank;
  rank->table = test::units_of(one.vocabulary);
  try {
    rank->comm = connect(one, world, rank->ledger, 1.0);
    rank->state = std::make_unique<zero::ShardedState<float>>(rank->table, *rank->comm, one.config, rank->ledger);
    rank->model = std::make_unique<test::ModelStep<float>>(rank->table, *rank->comm, *rank->state, one.shape());
    if (rank->comm->rank() == one.ranks - 1) {
      rank->model->sleep_once(2, before_norm, std::chrono::milliseconds(2500));
    }
    rank->model->fill_weights();
    for (const int step : {1, 2, 4}) rank->model->train(step, false);
  } catch (const Error& error) {
    test::make_progress_for(std::chrono::milliseconds(3000));
    return error.failure() == Failure::communication ? "lost" : error.what();
  }
  return "all steps";
}

/// Whether the ranks that waited for the lost rank report it.
bool loss_is_noticed(const Case& one, std::uint64_t seed, bool before_norm) {
  std::vector<std::string> ends(static_cast<std::size_t>(one.ranks));
  std::atomic<std::size_t> next{0};
  test::run_ranks(one.ranks, seed, [&](MPI_Comm world) {
    ends[next.fetch_add(1, std::memory_order_relaxed)] = lose_last_rank(one, world, before_norm);
  });
  const auto lost = std::count(ends.begin(), ends.end(), "lost");
  const bool noticed = lost >= one.ranks - 1;
  if (!noticed)
    std::cout << "FAILED: " << one.name() << ", a rank comes too late: " << lost << " ranks say so" << std::endl;
  return noticed;
}

std::vector<Case> cases_of_loss() {
  std::vector<Case> cases;
  for (const int stage : {3, 2, 0})
    for (const char* backend : {"shm", "windows", "mpi", "ring"})
      cases.push_back({{stage, zero::Accumulation::ordered, 3, true, 1},
                       stage == 3 ? test::Vocabulary::tied : test::Vocabulary::untied,
                       backend,
                       3,
                       stage == 2 ? 1 : 0,
                       false});
  return cases;
}

std::vector<Case> all_cases() {  // NOLINT: one loop per axis
  std::vector<Case> cases;
  using zero::Accumulation;
  for (const bool bf16 : {false, true})
    for (const int ranks : {3, 5})
      for (const char* backend : {"shm", "windows", "mpi", "ring"})
        for (const auto vocabulary : {test::Vocabulary::untied, test::Vocabulary::tied, test::Vocabulary::in_blocks})
          for (int stage = 0; stage < 4; ++stage)
            for (const auto accumulation : {Accumulation::local, Accumulation::ordered})
              for (const int micro_steps : {1, 3})
                for (const bool overlap : {false, true})
                  for (const int prefetch : {0, 1, 3}) {
                    if (stage < 3 && prefetch != 1) continue;
                    if (stage > 1 && accumulation == Accumulation::local) continue;
                    for (const int idle : {0, 1, ranks - 1})
                      cases.push_back({{stage, accumulation, micro_steps, overlap, prefetch},
                                       vocabulary,
                                       backend,
                                       ranks,
                                       idle,
                                       bf16});
                  }
  return cases;
}

/// Kokkos runs kernels, fences and copies under the lock of its one serial instance. The order that this lock makes
/// among the ranks is hidden from ThreadSanitizer, since it would hide races. The kernels' accesses are not hidden.
void hide_locks_of_kokkos() {
  namespace tools = Kokkos::Tools::Experimental;
  const auto begin = [](const char*, std::uint32_t, std::uint64_t*) { test::hide_order(); };
  const auto end = [](std::uint64_t) { test::show_order(); };
  tools::set_begin_parallel_for_callback(begin);
  tools::set_end_parallel_for_callback(end);
  tools::set_begin_parallel_reduce_callback(begin);
  tools::set_end_parallel_reduce_callback(end);
  tools::set_begin_fence_callback(begin);
  tools::set_end_fence_callback(end);
}

/// Runs the case. Returns whether all results were as expected.
bool holds(const Case& one, std::uint64_t seed) {
  std::mutex mutex;
  std::string problem;
  test::run_ranks(one.ranks, seed, [&](MPI_Comm world) {
    std::string mine;
    try {
      mine = one.bf16 ? take_steps<Bfloat16>(one, world) : take_steps<float>(one, world);
    } catch (const std::exception& error) {
      mine = error.what();
    }
    const std::lock_guard lock(mutex);
    if (problem.empty()) problem = mine;
  });
  if (!problem.empty()) std::cout << "FAILED: " << one.name() << ", seed " << seed << ": " << problem << std::endl;
  return problem.empty();
}

struct Options {
  std::size_t every = 1, first = 0;
  std::uint64_t seed = 1;
  bool verbose = false;
};

Options options_of(int argc, char* argv[]) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&] { return ++i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
    if (name == "--every") options.every = std::max<std::size_t>(1, number());
    if (name == "--first") options.first = number();
    if (name == "--seed") options.seed = number();
    if (name == "--verbose") options.verbose = true;
  }
  return options;
}

}  // namespace

int main(int argc, char* argv[]) {
  const Options options = options_of(argc, argv);
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1));
  hide_locks_of_kokkos();
  const auto cases = all_cases();
  std::size_t run = 0;
  bool all = true;
  for (std::size_t i = options.first % options.every; i < cases.size(); i += options.every, ++run) {
    if (options.verbose) std::cout << cases[i].name() << std::endl;
    all = holds(cases[i], options.seed + i) && all;
  }
  const auto losses = cases_of_loss();
  for (std::size_t i = 0; i < (options.every == 1 ? losses.size() : 3); ++i) {
    all = loss_is_noticed(losses[i], options.seed + i, i % 2 == 1) && all;
  }
  std::cout << run << " of " << cases.size() << " cases, seed " << options.seed << ": "
            << (all ? "all numbers are right" : "NOT all as expected") << std::endl;
  return all ? 0 : 1;
}
