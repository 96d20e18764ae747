// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unsaved_run.cpp: construction of an unsaved run, and the replay of a step against metrics.jsonl and a checkpoint.
#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include <kozero/core/device.hpp>
#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/data_check.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/unsaved_run.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_status.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::run {
namespace {

/// A deck without staging, since nothing is saved.
io::Deck without_saving(io::Deck deck) {
  deck.checkpoint.async = false;
  return deck;
}

/// What metrics.jsonl says of a step; nothing where the number was not finite.
struct Logged {
  std::optional<double> loss;
  std::optional<double> grad_norm;
};

/// [[step, loss, gradient norm], ...], null if a number was not finite; broken lines are left out.
nlohmann::json rows_of(const std::string& path) {
  constexpr std::array<std::string_view, 2> kKeys = {"loss", "grad_norm"};
  nlohmann::json rows = nlohmann::json::array();
  io::read_metrics(path, kKeys, [&](std::int64_t step, std::span<const double> values) {
    rows.push_back({step, values[0], values[1]});  // nlohmann-json writes NaN as null
  });
  return rows;
}

/// The steps of metrics.jsonl, which rank 0 reads. Collective.
std::map<std::int64_t, Logged> logged_steps(const std::string& path, distributed::Communicator& comm) {
  const auto number = [](const nlohmann::json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  };
  std::map<std::int64_t, Logged> steps;
  for (const auto& row :
       nlohmann::json::parse(distributed::from_first_rank(comm, [&] { return rows_of(path).dump(); }))) {
    steps[row[0].get<std::int64_t>()] = {number(row[1]), number(row[2])};
  }
  return steps;
}

bool same_bits(const std::optional<double>& logged, double value) {
  if (!logged) return !std::isfinite(value);
  return std::bit_cast<std::uint64_t>(*logged) == std::bit_cast<std::uint64_t>(value);
}

/// The rank count of the run's last start, from ranks.json or the deck; 0 if unknown.
std::int64_t ranks_of(const std::string& run, const io::Deck& deck) {
  if (const auto ranks = io::ranks_in(run); !ranks.empty()) return std::ssize(ranks);
  return deck.run.ranks > 1 ? deck.run.ranks : 0;
}

/// The checkpoint's step from its manifest; -1 if the manifest cannot be read.
std::int64_t step_of(const std::string& folder) {
  try {
    return io::read_manifest(folder).record.step;
  } catch (const Error&) {
    return -1;
  }
}

/// Checkpoints with their steps, newest first, as rank 0 sees them. Collective.
std::vector<std::pair<std::int64_t, std::string>> checkpoints_of(const std::string& run,
                                                                 distributed::Communicator& comm) {
  const auto mine = distributed::agreed(comm, [&] {
    nlohmann::json all = nlohmann::json::array();
    if (comm.rank() != 0) return all.dump();
    for (const auto& folder : io::checkpoints_in(run)) all.push_back({step_of(folder), folder});
    return all.dump();
  });
  return nlohmann::json::parse(comm.broadcast_control(mine)).get<std::vector<std::pair<std::int64_t, std::string>>>();
}

/// The record of the order of sums in the run's newest readable checkpoint; empty if there is none.
std::map<std::string, std::string> recorded_exactness(const std::string& run) {
  for (const auto& folder : io::checkpoints_in(run)) {
    try {
      return io::read_manifest(folder).record.exactness;
    } catch (const Error&) {  // an older checkpoint may be intact
    }
  }
  return {};
}

/// Why the run's bits depend on its number of ranks; "" if they do not.
std::string bound_to_rank_count(const std::string& run, const io::Deck& deck) {
  if (deck.train.batch_scaling != "none") return "train.batch_scaling makes its batch depend on their number";
  if (deck.train.accumulate > 0) return "train.accumulate makes its batch depend on their number";
  const auto recorded = recorded_exactness(run);
  const auto value = [&](const char* name, const std::string& otherwise) {
    const auto found = recorded.find(name);
    return found == recorded.end() ? otherwise : found->second;
  };
  if (value(train::kAccumulation, deck.zero.accumulation) == "local") {
    return "zero.accumulation = \"local\" adds in an order that depends on their number";
  }
  const std::string backend = deck.comm.backend == "auto" ? distributed::assumed_backend(2) : deck.comm.backend;
  const std::string order =
      value(train::kOrderOfSums, distributed::adds_in_order(backend, deck.comm.exact) ? train::kRankOrder : backend);
  return order == train::kRankOrder ? "" : order + " adds in an order that depends on their number";
}

/// Throws Error(deck), seen by all ranks, if the bits depend on the rank count and this count is another. Collective.
void require_rank_count(const std::string& run, const io::Deck& deck, std::int64_t step,
                        distributed::Communicator& comm) {
  const auto ranks = distributed::broadcast_value(
      comm, distributed::agreed(comm, [&] { return comm.rank() == 0 ? ranks_of(run, deck) : std::int64_t{0}; }));
  if (ranks == 0 || ranks == comm.size()) return;
  const std::string reason = distributed::from_first_rank(comm, [&] { return bound_to_rank_count(run, deck); });
  if (reason.empty()) return;
  throw Error(Failure::deck,
              fmt::format("{}: it ran on {} {}, not on {}, and {}: ./kozero.sh -n {} verify {} --replay {}", run, ranks,
                          ranks == 1 ? "rank" : "ranks", comm.size(), reason, ranks, run, step),
              Error::Seen::by_all_ranks);
}

/// The newest complete checkpoint of a step that `fits`.
template <class Fits>
std::optional<io::FoundCheckpoint> find_checkpoint(const std::string& run, distributed::Communicator& comm,
                                                   const Fits& fits) {
  for (const auto& [step, folder] : checkpoints_of(run, comm)) {
    if (step < 0 || !fits(step)) continue;
    try {
      return io::FoundCheckpoint{folder, io::verify_checkpoint(comm, folder)};
    } catch (const Error& problem) {
      if (problem.failure() != Failure::input || !problem.seen_by_all_ranks()) throw;
      if (comm.rank() == 0) std::cout << "skipped      " << problem.what() << "\n";
    }
  }
  return std::nullopt;
}

class Replay {
 public:
  Replay(Session& session, std::string run, std::int64_t step)
      : session_(session),
        comm_(session.control()),
        run_(std::move(run)),
        step_(step),
        logged_(logged_steps(run_ + "/" + io::kMetricsFile, comm_)),
        data_(open_data_of(session.deck(), comm_)) {
    if (logged_.contains(step_)) return;
    const std::string range =
        logged_.empty() ? std::string("it has none")
                        : fmt::format("the first is {}, the last {}", logged_.begin()->first, logged_.rbegin()->first);
    throw Error(Failure::input, fmt::format("{}/{}: no step {}; {}", run_, io::kMetricsFile, step_, range),
                Error::Seen::by_all_ranks);
  }

  /// The first difference; "" if there is none.
  std::string execute();

 private:
  void say(const std::string& line) const {
    if (comm_.rank() == 0) std::cout << line << std::endl;
  }
  void say_start(const std::optional<io::FoundCheckpoint>& start);
  std::string compare_step(const train::StepResult& result);
  std::string compare_state(UnsavedRun& run);

  Session& session_;
  distributed::Communicator& comm_;
  std::string run_;
  std::int64_t step_;
  std::map<std::int64_t, Logged> logged_;
  data::DataSet data_;
};

void Replay::say_start(const std::optional<io::FoundCheckpoint>& start) {
  say(fmt::format("step {} of {} again on {} {}, from {}", step_, run_, comm_.size(),
                  comm_.size() == 1 ? "rank" : "ranks", start ? start->folder : "the run's beginning"));
  if (!start) return;
  data::DataCheck check({data_.train_shards}, comm_);
  const auto mine = data::identity_of(data_, check, comm_);
  const std::string differs = data::difference(start->manifest.record.data, mine);
  if (!differs.empty()) say("note         the training data are others than those of the checkpoint: " + differs);
}

std::string Replay::compare_step(const train::StepResult& result) {
  const auto logged = logged_.find(result.step);
  if (logged == logged_.end()) return "";
  const auto text = [](const std::optional<double>& number) {
    return number ? fmt::format("{:.17g}", *number) : std::string("not finite");
  };
  std::string differs;
  const auto compare = [&](const char* what, const std::optional<double>& then, double now) {
    if (differs.empty() && !same_bits(then, now))
      differs = fmt::format("step {}: the {} is {:.17g} and was {}", result.step, what, now, text(then));
  };
  compare("loss", logged->second.loss, result.loss);
  compare("gradient norm", logged->second.grad_norm, result.grad_norm);
  say(fmt::format("{:>6}  loss {:<22.17g}  gradient norm {:<22.17g}  {}", result.step, result.loss, result.grad_norm,
                  differs.empty() ? "equal" : "DIFFERS"));
  return differs;
}

std::string Replay::compare_state(UnsavedRun& run) {
  const auto saved = find_checkpoint(run_, comm_, [&](std::int64_t step) { return step == step_; });
  if (!saved) return "";
  const auto mine = state_hashes(run.engine());
  train::load_state(saved->folder + "/" + io::kStateFile, run.engine(), comm_);
  const auto theirs = state_hashes(run.engine());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].hash != theirs[i].hash) return fmt::format("{} is not that of {}", mine[i].name, saved->folder);
  }
  say("        all weights and moments are those of " + saved->folder);
  return "";
}

std::string Replay::execute() {
  const auto start = find_checkpoint(run_, comm_, [&](std::int64_t step) { return step < step_; });
  if (!start && !logged_.empty() && logged_.begin()->first > 1) {
    throw Error(Failure::input,
                fmt::format("{}: no complete checkpoint before step {}, and the run began after step {}", run_, step_,
                            logged_.begin()->first - 1),
                Error::Seen::by_all_ranks);
  }
  const std::int64_t lesson_begin = train::steps_of_lesson(session_.deck(), comm_.size()).first;
  if (lesson_begin > 0 && (!start || start->manifest.record.step < lesson_begin)) {
    throw Error(
        Failure::input,
        fmt::format("{}: step {} is of a lesson that begins behind step {}, and no complete checkpoint is there "
                    "from then on; checkpoint.keep keeps more",
                    run_, step_, lesson_begin),
        Error::Seen::by_all_ranks);
  }
  say_start(start);
  UnsavedRun run(session_, session_.deck(), data_, start);
  std::string first;
  for (std::int64_t step = start ? start->manifest.record.step + 1 : 1; step <= step_; ++step) {
    const std::string differs = compare_step(run.step(step));
    if (first.empty()) first = differs;
  }
  const std::string state = compare_state(run);
  return first.empty() ? state : first;
}

/// Of a deck with a curriculum, the deck of its first lesson.
io::Deck first_lesson_of(const io::Deck& deck) {
  return deck.run.curriculum.empty() || deck.whole != nullptr ? deck : io::deck_of_lesson(deck, 0);
}

}  // namespace

data::DataSet open_data_of(const io::Deck& given, distributed::Communicator& comm) {
  const io::Deck deck = first_lesson_of(given);
  const auto seq =
      distributed::agreed(comm, [&] { return train::seq_of(deck, train::model_config(deck, data::vocab_of(deck))); });
  data::DataSet data = data::open_data(deck, seq, comm);
  distributed::agreed(comm, [&] { data::require_whole_sample(data, deck, seq); });
  return data;
}

std::vector<HashedTensor> state_hashes(train::Engine& engine) {
  const auto& tensors = engine.parameters().tensors();
  std::vector<HashedTensor> state;
  std::vector<std::uint64_t> mine;
  for (const auto& group : train::owned_state(engine)) {
    for (const auto& tensor : tensors) state.push_back({group.name + "/" + tensor.name, 0});
    mine.resize(state.size());
    const std::span<std::uint64_t> of_group = std::span(mine).last(tensors.size());
    for (const auto& shard : group.shards) {
      zero::add_tensor_hashes(engine.parameters(), shard.unit, shard.begin, shard.values, of_group);
    }
  }
  engine.require_unchanged_disk();
  const auto all = distributed::from_all_ranks(engine.comm(), mine);
  for (std::size_t i = 0; i < all.size(); ++i) state[i % mine.size()].hash += all[i];
  return state;
}

UnsavedRun::UnsavedRun(Session& session, io::Deck deck, const data::DataSet& data,
                       const std::optional<io::FoundCheckpoint>& start)
    : settings_(distributed::agreed(session.control(),
                                    [&] {
                                      return train::settings_of(without_saving(first_lesson_of(deck)),
                                                                session.control().size(), data.vocab,
                                                                data.train->num_samples());
                                    })),
      on_ranks_(session, settings_, data.vocab) {
  fill_base(deck, start ? start->manifest.record.base : "", start ? start->folder : "", engine(), session.control());
  if (start) {
    train::load_state(start->folder + "/" + io::kStateFile, engine(), session.control());
    settings_.step.optimizer_start = start->manifest.record.optimizer_start;
    settings_.step.loss_scaler.restore(start->manifest.record.loss_scale);
  } else {
    begin_weights(deck, engine(), *mesh().all);
  }
  sampler_.emplace(data::sampler_of(data, settings_.order_seed, settings_.batch.global_batch, settings_.samples));
  engine().train_on(*sampler_, *data.train, settings_.step);
}

std::int64_t ranks_of_run(const std::string& run) { return ranks_of(run, io::read_deck(run + "/" + train::kDeckFile)); }

void replay(const distributed::Environment& environment, const std::string& run,
            const std::vector<std::string>& overrides, std::int64_t step) {
  Session session(environment, [&](distributed::Communicator& comm) {
    io::Deck deck = distributed::agreed(comm, [&] {
      const io::Deck given = io::read_deck(run + "/" + train::kDeckFile, overrides);
      return ranks_of(run, given) == comm.size() ? given : on_any_ranks(given, overrides);
    });
    require_rank_count(run, deck, step, comm);
    deck.run.dir = run;
    deck.checkpoint.resume = "none";
    const auto checkpoints = checkpoints_of(run, comm);
    const bool starts_there = std::any_of(checkpoints.begin(), checkpoints.end(),
                                          [&](const auto& found) { return found.first >= 0 && found.first < step; });
    const bool has_weights = starts_there && deck.model.lora.rank == 0;  // of adapters it has not the base
    if (has_weights) deck.model.init = train::kRandom;
    return with_initial_model(std::move(deck), comm);
  });
  const io::Deck& deck = session.deck();
  if (deck.data.grow) {
    throw Error(Failure::deck,
                run + ": --replay does not know the files of an epoch; accepted: runs with data.grow = false",
                Error::Seen::by_all_ranks);
  }
  if (!deck.run.curriculum.empty()) {
    const std::size_t lesson = train::lesson_after(deck, session.control().size(), step - 1);
    session.use_deck(io::deck_of_lesson(io::Deck(deck), lesson));
  }
  const std::string first = Replay(session, run, step).execute();
  if (first.empty()) return;
  throw Error(Failure::internal, first + " (bits are those of the program, processor and data that the run had)",
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::run
