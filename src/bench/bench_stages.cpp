// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_stages.cpp: training steps of a deck under each ZeRO stage: time, memory, bytes and communication in one table,
// and whether all bits are equal.
//   exposed = waiting + moving      seconds per step in calls of collectives, which nothing hides; mean over ranks
// The stages take turns, so that a machine that slows down slows all of them. Each turn makes a new engine, so that
// only one stage is in memory. The peak memory of a process would be that of its largest stage so far, so the table has
// the ledger's total: an engine allocates all large arrays before its first step and frees none.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/run/evaluation_text.hpp>
#include <kozero/run/trace.hpp>
#include <kozero/run/unsaved_run.hpp>
#include "src/bench/bench.hpp"

namespace kozero::bench {
namespace {

using run::open_data_of;
using run::Session;
using run::Trace;
using run::UnsavedRun;

/// Seconds of the measured steps of a turn, on one rank.
struct Cost {
  double exposed_s = 0.0;
  double waited_s = 0.0;  ///< part of exposed_s
  bool tells_waiting = true;
  std::int64_t bytes_sent = 0;
  std::int64_t memory = 0;
  std::int64_t disk = 0;
};

struct Turn {
  Trace trace;  ///< of all steps; hashes only after the last step
  std::vector<double> step_s;
  std::int64_t tokens = 0;  ///< per step
  std::vector<Cost> costs;  ///< by rank
};

/// The turns of one stage.
struct Row {
  int stage = 0;
  std::string skipped;  ///< why the stage was not measured; "": it was measured
  std::string differs;  ///< the difference from the first turn; "": all bits are equal
  std::vector<double> step_s, exposed_s, waited_s;
  bool tells_waiting = true;
  std::int64_t tokens = 0, bytes_sent = 0, memory = 0, disk = 0;  ///< bytes: of the rank that has most

  void add(const Turn& turn, std::int64_t steps);
  [[nodiscard]] double tokens_per_s() const { return static_cast<double>(tokens) / median(step_s); }
};

void Row::add(const Turn& turn, std::int64_t steps) {
  tokens = turn.tokens;
  step_s.insert(step_s.end(), turn.step_s.begin(), turn.step_s.end());
  const double turns_of_ranks = static_cast<double>(steps) * static_cast<double>(turn.costs.size());
  double exposed = 0.0;
  double waited = 0.0;
  for (const Cost& cost : turn.costs) {
    exposed += cost.exposed_s / turns_of_ranks;
    waited += cost.waited_s / turns_of_ranks;
    tells_waiting = tells_waiting && cost.tells_waiting;
    bytes_sent = std::max(bytes_sent, cost.bytes_sent / steps);
    memory = std::max(memory, cost.memory);
    disk = std::max(disk, cost.disk);
  }
  exposed_s.push_back(exposed);
  waited_s.push_back(waited);
}

Cost cost_of(UnsavedRun& run) {
  Cost cost;
  for (const auto& one : run.mesh().counts->rows()) {
    cost.exposed_s += one.seconds;
    cost.waited_s += one.waited.value_or(0.0);
    cost.tells_waiting = cost.tells_waiting && one.waited.has_value();
    cost.bytes_sent += one.bytes;
  }
  cost.memory = run.ledger().total();
  cost.disk = run.ledger().bytes(Memory::disk);
  return cost;
}

/// Makes the engine, and trains it for kFirstSteps steps and `steps` measured steps. Collective.
Turn turn_of(Session& session, const io::Deck& deck, const data::DataSet& data, std::int64_t steps) {
  using Clock = std::chrono::steady_clock;
  UnsavedRun run(session, deck, data);
  Turn turn;
  for (std::int64_t step = 1; step <= kFirstSteps + steps; ++step) {
    if (step == kFirstSteps + 1) {
      warm_up_device();
      run.mesh().counts->reset();
    }
    const auto start = Clock::now();
    const auto result = run.step(step);
    Device().fence("kozero::bench_stages");
    if (step > kFirstSteps) turn.step_s.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    turn.tokens = result.tokens;
    turn.trace.losses.push_back(result.loss);
    turn.trace.norms.push_back(result.grad_norm);
    turn.trace.hashes.emplace_back();
  }
  turn.costs = distributed::from_all_ranks(session.control(), cost_of(run));
  for (const auto& tensor : run::state_hashes(run.engine())) {
    turn.trace.tensors.push_back(tensor.name);
    turn.trace.hashes.back().push_back(tensor.hash);
  }
  return turn;
}

class StagesBench {
 public:
  StagesBench(Session& session, const data::DataSet& data, std::int64_t steps)
      : session_(session), data_(data), steps_(steps) {
    for (int stage = 0; stage < std::ssize(rows_); ++stage) rows_[static_cast<std::size_t>(stage)].stage = stage;
  }

  /// One turn of every stage. A stage that the deck or the memory does not allow is skipped. Collective.
  void add_round() {
    for (Row& row : rows_) {
      if (row.skipped.empty()) add_turn(row);
    }
  }

  [[nodiscard]] const std::array<Row, 4>& rows() const { return rows_; }

 private:
  void add_turn(Row& row) {
    io::Deck deck = session_.deck();
    deck.zero.stage = row.stage;
    try {
      const Turn turn = turn_of(session_, deck, data_, steps_);
      row.add(turn, steps_);
      if (!first_) first_ = turn.trace;
      const auto found = run::difference(*first_, turn.trace);
      if (found && row.differs.empty()) row.differs = found->text;
    } catch (const Error& error) {
      const bool refused = error.failure() == Failure::deck && error.seen_by_all_ranks();
      if (!refused || !row.step_s.empty()) throw;
      row.skipped = error.what();
    }
  }

  Session& session_;
  const data::DataSet& data_;
  std::int64_t steps_;
  std::optional<Trace> first_;
  std::array<Row, 4> rows_;
};

/// Whether seconds in a collective's calls are exposed; NCCL's calls return before the bytes have moved.
bool tells_exposed(const std::string& backend) { return backend != "nccl"; }

/// The median of these seconds; nullopt if they are not known.
std::optional<double> known(const std::vector<double>& seconds, bool is_known) {
  return is_known ? std::optional(median(seconds)) : std::nullopt;
}

struct Communication {
  std::optional<double> exposed_s, waited_s, moved_s;

  Communication(const Row& row, const std::string& backend) {
    exposed_s = known(row.exposed_s, tells_exposed(backend));
    waited_s = known(row.waited_s, exposed_s && row.tells_waiting);
    if (waited_s) moved_s = *exposed_s - *waited_s;
  }
};

void print(const std::array<Row, 4>& rows, const std::string& backend) {
  const auto ms = [](std::optional<double> seconds) { return seconds ? fmt::format("{:.2f}", 1e3 * *seconds) : "-"; };
  std::cout << fmt::format("{:>5}{:>10}{:>11}{:>12}{:>10}{:>12}{:>12}{:>11}  {}\n", "stage", "step ms", "tokens/s",
                           "memory MiB", "sent MiB", "exposed ms", "waiting ms", "moving ms", "bits");
  for (const Row& row : rows) {
    if (!row.skipped.empty()) {
      std::cout << fmt::format("{:>5}  skipped: {}\n", row.stage, row.skipped);
      continue;
    }
    const Communication spent(row, backend);
    std::cout << fmt::format("{:>5}{:>10.2f}{:>11.0f}{:>12.1f}{:>10.2f}{:>12}{:>12}{:>11}  {}\n", row.stage,
                             1e3 * median(row.step_s), row.tokens_per_s(), static_cast<double>(row.memory) / kMiB,
                             static_cast<double>(row.bytes_sent) / kMiB, ms(spent.exposed_s), ms(spent.waited_s),
                             ms(spent.moved_s), row.differs.empty() ? "equal" : "differ: " + row.differs);
  }
}

nlohmann::ordered_json json_of(const std::array<Row, 4>& rows, const std::string& backend, int ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto number = [](std::optional<double> value) { return value ? nlohmann::ordered_json(*value) : nullptr; };
  for (const Row& row : rows) {
    const bool measured = row.skipped.empty();
    const Communication spent(row, backend);
    const auto bytes = [&](std::int64_t count) { return measured ? nlohmann::ordered_json(count) : nullptr; };
    const auto seconds = [&](std::optional<double> value) { return measured ? number(value) : nullptr; };
    list.push_back({{"stage", row.stage},
                    {"ranks", ranks},
                    {"backend", backend},
                    {"step_s", seconds(median(row.step_s))},
                    {"tokens_per_s", measured ? number(row.tokens_per_s()) : nullptr},
                    {"memory_bytes", bytes(row.memory)},
                    {"disk_bytes", bytes(row.disk)},
                    {"bytes_sent", bytes(row.bytes_sent)},
                    {"exposed_s", seconds(spent.exposed_s)},
                    {"waited_s", seconds(spent.waited_s)},
                    {"moved_s", seconds(spent.moved_s)},
                    {"bits_equal", measured ? nlohmann::ordered_json(row.differs.empty()) : nullptr},
                    {"difference", row.differs},
                    {"skipped", row.skipped}});
  }
  return list;
}

/// Throws Error, seen by all ranks, if no stage could be measured or bits differ.
void require_equal_bits(const std::array<Row, 4>& rows) {
  if (std::ranges::none_of(rows, [](const Row& row) { return row.skipped.empty(); })) {
    throw Error(Failure::deck, "bench stages: no stage can run: " + rows.back().skipped, Error::Seen::by_all_ranks);
  }
  const auto differs = std::ranges::find_if(rows, [](const Row& row) { return !row.differs.empty(); });
  if (differs == rows.end()) return;
  throw Error(Failure::internal, fmt::format("the bits differ: stage {}: {}", differs->stage, differs->differs),
              Error::Seen::by_all_ranks);
}

}  // namespace

void bench_stages(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("bench stages");
  DeckArguments given;
  std::int64_t steps = 5;
  int rounds = 3;
  JsonOutput json;
  given.add_to(parser);
  parser.add("--steps", steps, "steps to measure in a turn of a stage").type_name("N").positive();
  parser.add("--runs", rounds, "turns of each stage; medians are printed").type_name("N").positive();
  json.add_to(parser);
  parser.parse(arguments);
  if (given.gives("zero.stage")) {
    throw Error(Failure::deck, "bench stages measures all four: leave zero.stage out, or take bench step for one stage",
                Error::Seen::by_all_ranks);
  }

  Session session(environment, [&](distributed::Communicator& comm) { return given.read(comm); });
  const data::DataSet data = open_data_of(session.deck(), session.control());
  const std::string backend = session.backend();
  StagesBench bench(session, data, steps);
  for (int round = 0; round < rounds; ++round) {
    if (session.is_first_rank()) std::cerr << fmt::format("turn {} of {}\n", round + 1, rounds);
    bench.add_round();
  }
  if (session.is_first_rank()) {
    std::cout << fmt::format("{}: {} rank{} (rank 0: {}), {}; {} turn{} of {} step{}, medians\n", session.deck().source,
                             environment.size(), environment.size() == 1 ? "" : "s", session.runtime().placement(),
                             backend, rounds, rounds == 1 ? "" : "s", steps, steps == 1 ? "" : "s");
    print(bench.rows(), backend);
    json.print({{"stages", json_of(bench.rows(), backend, environment.size())}});
  }
  require_equal_bits(bench.rows());
}

}  // namespace kozero::bench
