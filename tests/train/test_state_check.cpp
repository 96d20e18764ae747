// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_state_check.cpp: random single-bit flips on one rank, one per run: whether run.check_every finds them, by place.
//   KOZERO_FLIPS=1000 (the target memory_flips): 1000 flips, with a table; default: a sample
// A flip between two steps is in state that rests. Other flips are made within a step: in a gradient between
// micro-steps (when data are read), in a reduced gradient (when the norm is gathered), in a gathered copy after its
// gather, in an addend before it is sent.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <random>

#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator_decorators.hpp>
#include "src/train/state_check.hpp"

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using tests::TinyRun;
using tests::TinyTraining;

namespace {

enum class Where { weights, moments, resting_gradient, reduced_gradient, gathered_copy, addend };
const std::map<Where, std::string> kNames = {{Where::weights, "weights, masters"},
                                             {Where::moments, "moments"},
                                             {Where::resting_gradient, "gradient between micro-steps"},
                                             {Where::reduced_gradient, "gradient, reduced"},
                                             {Where::gathered_copy, "gathered copy"},
                                             {Where::addend, "gradient before its reduction"}};

void flip_bit(void* memory, std::int64_t bytes, std::mt19937_64& random) {
  const auto bit = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(8 * bytes));
  auto& byte = static_cast<unsigned char*>(memory)[bit / 8];
  byte = static_cast<unsigned char>(byte ^ (1U << (bit % 8)));
}

template <class T>
void flip_in(const Vector<T>& values, std::mt19937_64& random) {
  flip_bit(const_cast<std::remove_const_t<T>*>(values.data()), static_cast<std::int64_t>(values.extent(0) * sizeof(T)),
           random);
}

/// Callbacks from within a step.
class Meddling final : public distributed::CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  std::function<void()> at_control;
  std::function<void(void*, std::int64_t)> at_gathered, at_reduction;

  distributed::Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition,
                                            distributed::Fold fold) override {
    if (at_reduction) at_reduction(const_cast<float*>(full), 4 * partition.extent());
    return CommunicatorDecorator::start_reduce_scatter(full, shard, partition, fold);
  }
  distributed::Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                                        std::size_t size) override {
    const auto pending = CommunicatorDecorator::start_all_gather(shard, full, partition, size);
    under_way_.push_back({pending.ticket, full, static_cast<std::int64_t>(size) * partition.extent()});
    return pending;
  }
  void wait(distributed::Pending pending) override {
    CommunicatorDecorator::wait(pending);
    if (pending.collective != distributed::Collective::all_gather) return;
    for (auto gather = under_way_.begin(); gather != under_way_.end(); ++gather) {
      if (gather->ticket != pending.ticket) continue;
      if (at_gathered) at_gathered(gather->full, gather->bytes);
      under_way_.erase(gather);
      return;
    }
  }
  std::vector<std::byte> gather_control(std::span<const std::byte> mine) override {
    if (at_control) at_control();
    return CommunicatorDecorator::gather_control(mine);
  }

 private:
  struct Gather {
    std::uint64_t ticket;
    void* full;
    std::int64_t bytes;
  };
  std::vector<Gather> under_way_;
};

/// Samples that call a function when they are read.
class WatchedSamples final : public data::SampleSource {
 public:
  explicit WatchedSamples(const data::SampleSource& inner) : inner_(inner) {}
  std::function<void()> at_read;
  [[nodiscard]] std::int64_t num_samples() const override { return inner_.num_samples(); }
  void read(std::int64_t index, std::span<Token> window) const override {
    if (at_read) at_read();
    inner_.read(index, window);
  }

 private:
  const data::SampleSource& inner_;
};

struct Trial {
  Where where = Where::weights;
  int stage = 0;
  Precision precision = Precision::f32;
  zero::Accumulation accumulation = zero::Accumulation::ordered;
  std::uint64_t seed = 0;
  int rank = 1;  ///< whose bit flips
};

/// One run of three steps; one bit of one rank is flipped in or before the second step.
class Run {
 public:
  Run(const Trial& trial, const distributed::Ranks& ranks)
      : trial_(trial),
        random_(trial.seed),
        comm_(distributed::make_communicator("mpi", ranks, ledger_)),
        run_{.model = trial.stage == 1 ? tests::tiny_gpt2() : tests::tiny_llama(),
             .precision = trial.precision,
             .stage = trial.stage,
             .accumulation = trial.accumulation,
             .micro_steps = 2,
             .global_batch = 12,
             .check_every = 1},
        training_(run_, comm_, ledger_),
        source_(training_.source()),
        sampler_(11, run_.num_samples, run_.global_batch),
        engine_(training_.engine()) {
    engine_.train_on(sampler_, source_, TinyTraining::settings(run_, comm_.size()).step);
  }

  /// The error's text; "" if the flip was not found.
  std::string found() {
    engine_.step(1);
    if (comm_.rank() == trial_.rank) arm();
    std::string text;
    try {
      engine_.step(2);
      disarm();
      engine_.step(3);
    } catch (const Error& error) {
      CHECK(error.seen_by_all_ranks());
      text = error.what();
    }
    disarm();
    CHECK((comm_.rank() != trial_.rank || flipped_));
    return text;
  }

 private:
  void once(const std::function<void()>& flip) {
    if (!std::exchange(flipped_, true)) flip();
  }
  void disarm() {
    comm_.at_control = nullptr;
    comm_.at_gathered = comm_.at_reduction = nullptr;
    source_.at_read = nullptr;
  }
  /// The index of an array that is not empty on this rank.
  template <class ExtentOf>
  std::size_t any_of(std::size_t count, const ExtentOf& extent_of) {
    std::size_t index = random_() % count;
    while (extent_of(index) == 0) index = random_() % count;
    return index;
  }
  /// The reduced gradients with which this rank updates.
  std::vector<Vector<const float>> gradients() {
    std::vector<Vector<const float>> all;
    training_.with_state([&](auto& state) {
      for (const auto& owned : state.update_ranges()) all.push_back(owned.gradient);
    });
    return all;
  }
  void flip_gradient(std::size_t owned) { flip_in(gradients()[owned], random_); }
  void flip_at_rest() {
    if (trial_.where == Where::weights) {
      std::vector<zero::RestingArray> arrays;
      training_.with_state([&](auto& state) { arrays = state.weights().at_rest(); });
      const auto extent_of = [&](std::size_t i) { return arrays[i].words.extent(0); };
      flip_in(arrays[any_of(arrays.size(), extent_of)].words, random_);
    } else {
      const auto states = training_.engine().optimizer_states();
      flip_in(states[random_() % states.size()].values, random_);
    }
  }
  void arm();

  Trial trial_;
  std::mt19937_64 random_;
  MemoryLedger ledger_;
  Meddling comm_;
  TinyRun run_;
  TinyTraining training_;
  WatchedSamples source_;
  data::Sampler sampler_;
  train::Engine& engine_;
  bool flipped_ = false;
  int reads_ = 0;
};

void Run::arm() {
  switch (trial_.where) {
    case Where::weights:
    case Where::moments:
      once([&] { flip_at_rest(); });
      break;
    case Where::resting_gradient:  // of a block: its reduction has ended; the embedding's may be under way
      source_.at_read = [this] {
        const int first_of_second = static_cast<int>(run_.global_batch) / comm_.size() / 2;
        if (reads_++ == first_of_second) once([&] { flip_gradient(1); });
      };
      break;
    case Where::reduced_gradient:
      comm_.at_control = [this] {
        const auto all = gradients();
        const auto extent_of = [&](std::size_t i) { return all[i].extent(0); };
        once([&] { flip_gradient(any_of(all.size(), extent_of)); });
      };
      break;
    case Where::gathered_copy:
      comm_.at_gathered = [this](void* full, std::int64_t bytes) { once([&] { flip_bit(full, bytes, random_); }); };
      break;
    case Where::addend:
      comm_.at_reduction = [this](void* full, std::int64_t bytes) { once([&] { flip_bit(full, bytes, random_); }); };
      break;
  }
}

/// The places of flips under a stage.
std::vector<Where> cases_of(int stage) {
  std::vector<Where> all = {Where::weights, Where::moments, Where::resting_gradient, Where::reduced_gradient};
  if (stage == 3) all.push_back(Where::gathered_copy);
  return all;
}

Trial random_trial(std::mt19937_64& random) {
  Trial trial{.stage = static_cast<int>(random() % 4), .seed = random()};
  trial.precision = random() % 2 == 0 ? Precision::f32 : Precision::bf16;
  const auto cases = cases_of(trial.stage);
  trial.where = cases[random() % cases.size()];
  // In stage 0 a whole gradient rests between micro-steps, but only with local accumulation.
  const bool local = trial.stage == 0 || (trial.stage == 1 && random() % 2 == 0);
  if (local) trial.accumulation = zero::Accumulation::local;
  return trial;
}

/// Whether the error names the rank with the flipped bit. If two replicas differ, it names both, since either may be
/// wrong.
bool names(const std::string& text, int rank, int ranks) {
  return text.find("on rank " + std::to_string(rank) + " ") != std::string::npos ||
         (ranks == 2 && text.find(" differs between rank 0 and rank 1") != std::string::npos);
}

}  // namespace

TEST_CASE("every flip in weights, moments, resting gradients and gathered copies is found before it is applied") {
  const char* asked = std::getenv("KOZERO_FLIPS");
  const int flips = asked == nullptr ? 40 : std::atoi(asked);
  std::mt19937_64 random(2024);
  std::map<std::pair<Where, int>, std::pair<int, int>> table;  // (found, all)
  tests::on_first_ranks(std::min(3, test::world_size()), "mpi",
                        [&](distributed::Communicator& comm, const distributed::Ranks& ranks) {
                          if (comm.size() == 1) return;
                          for (int flip = 0; flip < flips; ++flip) {
                            Trial trial = random_trial(random);
                            trial.rank = static_cast<int>(random() % static_cast<std::uint64_t>(comm.size()));
                            INFO(kNames.at(trial.where) << ", stage " << trial.stage << ", " << name_of(trial.precision)
                                                        << ", rank " << trial.rank << ", seed " << trial.seed);
                            const std::string text = Run(trial, ranks).found();
                            CHECK(text.find("step 2: ") == 0);
                            CHECK(names(text, trial.rank, comm.size()));
                            auto& [found, of] = table[{trial.where, trial.stage}];
                            found += text.empty() ? 0 : 1;
                            ++of;
                          }
                        });
  if (asked == nullptr || test::world_rank() != 0) return;
  for (const auto& [key, counts] : table) {
    std::cout << kNames.at(key.first) << ", stage " << key.second << ": " << counts.first << " of " << counts.second
              << " found\n";
  }
}

TEST_CASE("a flip in a rank's copy of a whole gradient is found, in another rank's share of it too") {
  tests::on_first_ranks(std::min(3, test::world_size()), "mpi",
                        [&](distributed::Communicator& comm, const distributed::Ranks& ranks) {
                          if (comm.size() == 1) return;
                          int by_comparison = 0;
                          for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
                            const auto text = Run({.where = Where::reduced_gradient, .seed = seed}, ranks).found();
                            CHECK(names(text, 1, comm.size()));
                            by_comparison += text.find("is not that of the other ranks") != std::string::npos ? 1 : 0;
                          }
                          CHECK(by_comparison > 0);
                        });
}

TEST_CASE("a flip in an addend before its reduction has no second copy: it is not found") {
  tests::on_first_ranks(std::min(2, test::world_size()), "mpi",
                        [&](distributed::Communicator& comm, const distributed::Ranks& ranks) {
                          if (comm.size() == 1) return;
                          for (int stage = 0; stage <= 3; ++stage) {
                            CHECK(Run({.where = Where::addend, .stage = stage, .seed = 5}, ranks).found().empty());
                          }
                        });
}

TEST_CASE("checks change no bit and find nothing in a sound run") {
  tests::on_each_group("mpi", [](distributed::Communicator& comm) {
    for (const auto precision : {Precision::f32, Precision::bf16}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (const auto accumulation : {zero::Accumulation::local, zero::Accumulation::ordered}) {
          if (stage > 1 && accumulation == zero::Accumulation::local) continue;
          MemoryLedger ledger, checked_ledger;
          TinyRun run{.model = tests::tiny_gpt2(),
                      .precision = precision,
                      .stage = stage,
                      .accumulation = accumulation,
                      .micro_steps = 2,
                      .steps = 4};
          const auto plain = TinyTraining(run, comm, ledger).result();
          for (const std::int64_t every : {1, 2}) {
            run.check_every = every;
            CHECK(TinyTraining(run, comm, checked_ledger).result() == plain);
          }
        }
      }
    }
  });
}

TEST_CASE("in groups of ranks the shards have replicas, and a flip in one is found later than its check too") {
  if (test::world_size() < 2) return;
  for (int stage = 1; stage <= 3; ++stage) {
    tests::on_first_mesh(
        test::world_size() / 2 * 2, test::world_size() / 2, "mpi", [&](distributed::MeshCommunicators& mesh) {
          MemoryLedger ledger;
          TinyTraining training({.model = tests::tiny_llama(), .stage = stage, .steps = 6, .check_every = 4},
                                mesh.mesh(), ledger);
          training.engine().step(1);
          const auto moment = training.engine().optimizer_states().front().values;
          if (mesh.all->rank() == 1)
            moment(3) = std::bit_cast<float>(std::bit_cast<std::uint32_t>(moment(3)) ^ (1U << 22U));
          training.engine().step(2);
          training.engine().step(3);
          std::string text;
          try {
            training.engine().step(4);
          } catch (const Error& error) {
            text = error.what();
          }
          INFO(text);
          CHECK((text.find("rank 1") != std::string::npos && text.find("differs between") != std::string::npos));
        });
  }
}

TEST_CASE("between checks, what all ranks hold alike is found later, and what is sharded or overwritten is not") {
  tests::on_first_ranks(std::min(2, test::world_size()), "mpi", [&](distributed::Communicator& comm) {
    if (comm.size() == 1) return;
    for (int stage = 0; stage <= 3; ++stage) {
      MemoryLedger ledger;
      TinyTraining training({.model = tests::tiny_llama(), .stage = stage, .steps = 6, .check_every = 4}, comm, ledger);
      training.engine().step(1);
      const auto moment = training.engine().optimizer_states().front().values;
      if (comm.rank() == 1) moment(3) = std::bit_cast<float>(std::bit_cast<std::uint32_t>(moment(3)) ^ (1U << 22U));
      training.engine().step(2);
      training.engine().step(3);
      std::string text;
      try {
        training.engine().step(4);
      } catch (const Error& error) {
        text = error.what();
      }
      CHECK(text.empty() == (stage > 0));
    }
  });
}
