// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_checkpoint.cpp: saves the state of a deck's model, and writes and copies as many bytes plainly, in turn.
//   write  one process writes them to one file, 8 MiB per call, and syncs it
//   copy   every rank copies its share from memory to memory, on its threads
//   save   a synchronous save, with all hashes
//   stall  of an asynchronous save
// All bytes are noise, since some disks write zeros faster. Saving and plain writing alternate in going first. Seconds
// are those of the slowest rank. Each run gives two ratios; the medians of the ratios are printed.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/random.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "src/bench/bench.hpp"

namespace kozero::bench {

using run::Session;

namespace {

namespace fs = std::filesystem;

/// Seconds of `work` on the slowest rank; all ranks begin together.
template <class Work>
double slowest(distributed::Communicator& comm, const Work& work) {
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  distributed::agreed(comm, work);
  const double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto all = distributed::from_all_ranks(comm, mine);
  return *std::max_element(all.begin(), all.end());
}

/// Fills with values that no disk can compress.
void fill_with_noise(const Vector<float>& values) {
  Kokkos::parallel_for(
      "kozero::bench::noise",
      Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, static_cast<std::int64_t>(values.extent(0))),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const auto word = philox(1, counter_of(static_cast<std::uint64_t>(i), 0)).x[0];
        values(static_cast<std::size_t>(i)) = static_cast<float>(word) * 0x1p-32F;
      });
  Device().fence("kozero::bench::noise");
}

void write_plainly(const std::string& path, std::int64_t bytes) {
  std::vector<std::uint32_t> noise(std::size_t{2} << 20);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = philox(2, counter_of(i, 0)).x[0];
  const std::string_view chunk(reinterpret_cast<const char*>(noise.data()), noise.size() * sizeof(std::uint32_t));
  io::FileDescriptor file(path, io::FileDescriptor::Use::create);
  for (std::int64_t done = 0; done < bytes; done += static_cast<std::int64_t>(chunk.size())) {
    const std::int64_t extent = std::min<std::int64_t>(bytes - done, std::ssize(chunk));
    file.write(chunk.substr(0, static_cast<std::size_t>(extent)));
  }
  file.sync();
  file.close();
}

using Buffer = Kokkos::View<char*, Kokkos::HostSpace>;

/// Each thread copies one contiguous share.
void copy_plainly(const Buffer& to, const Buffer& from) {
  const auto bytes = static_cast<std::int64_t>(from.extent(0));
  const std::int64_t threads = Host().concurrency();
  char* out = to.data();
  const char* in = from.data();
  Kokkos::parallel_for("kozero::bench::copy", Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>>(0, threads),
                       [=](const std::int64_t t) {
                         const std::int64_t first = bytes * t / threads;
                         std::memcpy(out + first, in + first,
                                     static_cast<std::size_t>(bytes * (t + 1) / threads - first));
                       });
  Host().fence("kozero::bench::copy");
}

struct Run {
  double write_s, save_s, copy_s, stall_s;
};

class CheckpointBench {
 public:
  CheckpointBench(Session& session, train::Engine& engine, std::string folder)
      : session_(session), engine_(engine), comm_(session.control()), folder_(std::move(folder)) {
    const auto share = static_cast<std::size_t>(engine.staging()->bytes());
    from_ = Buffer("kozero::bench::from", share);
    to_ = Buffer("kozero::bench::to", share);
    const auto groups = train::owned_state(engine);
    for (const auto& group : groups) {
      for (const auto& shard : group.shards) fill_with_noise(shard.values);
    }
    const ParameterTable& table = engine.parameters();
    bytes_ = (table.num_parameters() + (std::ssize(groups) - 1) * table.num_trainable()) *
             static_cast<std::int64_t>(sizeof(float));
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  Run run(bool saves_first) {
    Run result{};
    if (saves_first) result.save_s = saved(nullptr).seconds;
    result.write_s = written();
    if (!saves_first) result.save_s = saved(nullptr).seconds;
    result.copy_s = slowest(comm_, [&] { copy_plainly(to_, from_); });
    result.stall_s = saved(engine_.staging()).stall_s;
    return result;
  }

 private:
  double written() {
    const std::string path = folder_ + "/plain";
    const double seconds = slowest(comm_, [&] {
      if (comm_.rank() == 0) write_plainly(path, bytes_);
    });
    remove(path);
    return seconds;
  }

  /// A save on the slowest rank; its folder is removed.
  train::SaveReport saved(train::Staging* staging) {
    train::CheckpointSaver saver(engine_, staging,
                                 distributed::make_control_communicator(session_.environment().world(), 3600.0,
                                                                        {.role = distributed::Role::saver}));
    comm_.barrier();
    saver.begin(
        {std::make_shared<io::HeldFolder>(folder_, nullptr), {.step = 1, .model = "{}", .tokenizer = "none"}, {}, 0});
    auto report = saver.wait();
    distributed::agreed(comm_, [&] {
      if (report->problem) throw Error(*report->problem);
    });
    for (const double seconds : distributed::from_all_ranks(comm_, report->seconds)) {
      report->seconds = std::max(report->seconds, seconds);
    }
    for (const double stall_s : distributed::from_all_ranks(comm_, report->stall_s)) {
      report->stall_s = std::max(report->stall_s, stall_s);
    }
    remove(report->folder);
    return *report;
  }

  void remove(const std::string& path) {
    distributed::agreed(comm_, [&] {
      if (comm_.rank() == 0) fs::remove_all(path);
    });
  }

  Session& session_;
  train::Engine& engine_;
  distributed::Communicator& comm_;
  std::string folder_;
  std::int64_t bytes_ = 0;
  Buffer from_, to_;
};

void print(const std::vector<Run>& runs, std::int64_t bytes, const JsonOutput& json) {
  std::vector<double> speeds;
  std::vector<double> stalls;
  const double gb = static_cast<double>(bytes) / 1e9;
  std::cout << fmt::format("{:>4}{:>12}{:>12}{:>9}{:>12}{:>12}{:>9}\n", "run", "write GB/s", "save GB/s", "ratio",
                           "copy s", "stall s", "ratio");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    speeds.push_back(run.write_s / run.save_s);
    stalls.push_back(run.stall_s / run.copy_s);
    std::cout << fmt::format("{:>4}{:>12.3f}{:>12.3f}{:>9.2f}{:>12.4f}{:>12.4f}{:>9.2f}\n", i + 1, gb / run.write_s,
                             gb / run.save_s, speeds.back(), run.copy_s, run.stall_s, stalls.back());
  }
  std::cout << fmt::format(
      "medians of the ratios: a save has {:.2f} of the speed of plain writing, an asynchronous one stalls "
      "{:.2f} of a plain copy\n",
      median(speeds), median(stalls));
  std::vector<double> seconds;
  std::vector<double> stall_s;
  for (const auto& run : runs) {
    seconds.push_back(run.save_s);
    stall_s.push_back(run.stall_s);
  }
  json.print({{"bytes", bytes},
              {"save_s", median(seconds)},
              {"stall_s", median(stall_s)},
              {"save_over_write", median(speeds)},
              {"stall_over_copy", median(stalls)}});
}

}  // namespace

void bench_checkpoint(const distributed::Environment& environment, const Arguments& arguments) {
  const BenchArguments given("checkpoint", 5, arguments);

  Session session(environment, [&](distributed::Communicator& comm) { return given.deck.read(comm); });
  const io::Deck& deck = session.deck();
  auto settings = distributed::agreed(
      session.control(), [&] { return train::settings_of(deck, session.control().size(), data::vocab_of(deck), 0); });
  settings.staged = true;
  const run::EngineOnRanks on_ranks(session, settings, data::vocab_of(deck));
  on_ranks.engine().initialize(settings.seed);
  const std::string folder = io::without_trailing_slash(deck.run.dir) + "-bench";
  distributed::agreed(session.control(), [&] {
    if (session.is_first_rank()) fs::create_directories(folder);
  });
  CheckpointBench bench(session, on_ranks.engine(), folder);
  std::vector<Run> runs;
  for (int run = 0; run < given.runs; ++run) runs.push_back(bench.run(run % 2 == 1));
  if (!session.is_first_rank()) return;
  fs::remove_all(folder);
  std::cout << fmt::format("{}: a state of {} on {} {}\n", deck.source, io::readable_bytes(bench.bytes()),
                           session.control().size(), session.control().size() == 1 ? "rank" : "ranks");
  print(runs, bench.bytes(), given.json);
}

}  // namespace kozero::bench
