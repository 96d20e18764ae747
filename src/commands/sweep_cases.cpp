// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_cases.cpp: combines axes to cases, hashes what identifies a case, and plans it.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/data/text_files.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>
#include <kozero/run/adapters.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/runtime.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/schema.hpp"
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"
#include "src/commands/content_hashes.hpp"
#include "src/commands/sweep_cases.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kFolderDigits = 12;
constexpr std::size_t kMostCases = 10'000;

/// The deck with content hashes in place of the paths that it reads, and without the paths that it writes.
io::Deck without_paths(io::Deck deck, ContentHashes& hashes) {
  if (deck.data.has_text()) {  // "auto" is a file beside the tokenizer
    deck.data.chat_template = data::chat_template_of(deck.data.chat_template, deck.data.tokenizer);
  }
  const auto replace_texts = [&](std::vector<std::string>& paths) {
    if (paths.empty()) return;
    std::vector<std::string> contents;
    for (const auto& file : data::find_text(paths)) contents.push_back(hashes.of(file.path));
    paths = {io::hash_of_hashes(contents)};
  };
  replace_texts(deck.data.text);
  for (auto& source : deck.data.source) replace_texts(source.text);
  for (auto& path : deck.data.tokens) path = hashes.of(path);
  if (io::path_kind(deck.data.tokenizer) == io::PathKind::file) deck.data.tokenizer = hashes.of(deck.data.tokenizer);
  if (deck.run.tuning != "none") deck.run.tuning = hashes.of(deck.run.tuning);
  if (deck.model.lora.init != run::kNoAdapters) deck.model.lora.init = hashes.of(deck.model.lora.init);
  if (deck.model.init != train::kRandom) {
    const train::NamedPath named = train::named_path(deck.model.init);
    const bool is_folder = named.kind == train::NamedPath::Kind::hugging_face;
    deck.model.init = hashes.of(is_folder ? named.path : train::find_run(deck.model.init).weights);
  }
  deck.run.dir.clear();
  deck.data.cache.clear();
  return deck;
}

/// kozero-cuda if it computes the deck; empty if this program does.
fs::path program_on_gpus(const io::Deck& deck) {
  static const fs::path kProgram = run::usable_cuda_program();
  return deck.run.device == "host" ? fs::path() : kProgram;
}

std::string program_of(const io::Deck& deck) {
  const fs::path on_gpus = program_on_gpus(deck);
  return on_gpus.empty() ? host_program() : on_gpus.string();
}

std::string identity_of(const SweepCase& one, ContentHashes& hashes) {
  return io::xxh3_128(fmt::format("{}repetition: {}\nprogram: {}\n", io::fingerprint(without_paths(one.deck, hashes)),
                                  one.repetition, hashes.of(program_of(one.deck))));
}

/// Overrides, each key once; a later value replaces an earlier one.
class Overrides {
 public:
  void set(const std::string& key, const std::string& toml) { values_[key] = toml; }
  void set_unless_given(const std::string& key, const std::string& toml) { values_.emplace(key, toml); }
  [[nodiscard]] std::vector<std::string> list() const {
    std::vector<std::string> list;
    for (const auto& [key, toml] : values_) list.push_back(key + "=" + toml);
    return list;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// The error of a case's deck, which its overrides gave: without the words "command line", which gave none of them.
Error of_case(const Error& problem, const io::Matrix& matrix, const SweepCase& one) {
  const std::string begin = "command line: ";
  const std::string text = problem.what();
  return {problem.failure(), fmt::format("{}: case {}: {}", matrix.path, one.name,
                                         text.starts_with(begin) ? text.substr(begin.size()) : text)};
}

/// Reads the deck of a case whose values are `chosen`, one per axis.
SweepCase case_of(const io::Matrix& matrix, const std::vector<const io::AxisValue*>& chosen) {
  SweepCase one;
  one.values = Json::object();
  Overrides overrides;
  for (const auto& [key, toml] : matrix.set) overrides.set(key, toml);
  overrides.set_unless_given("checkpoint.every", "0");
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::string& axis = matrix.axes[i].key;
    one.name += (one.name.empty() ? "" : " ") + axis + "=" + chosen[i]->name;
    one.values[axis] = chosen[i]->value;
    if (chosen[i]->parts.is_object()) one.values.update(chosen[i]->parts);
    for (const auto& [key, toml] : chosen[i]->keys) overrides.set(key, toml);
  }
  if (one.name.empty()) one.name = matrix.name;
  try {
    // Runs share the tokens of a text, as those of the deck itself do.
    const io::Deck given = io::parse_deck(matrix.deck_text, matrix.deck, overrides.list());
    if (given.data.has_text()) overrides.set_unless_given("data.cache", io::toml_string(data::token_cache_of(given)));
    one.keys = overrides.list();
    one.deck = io::parse_deck(matrix.deck_text, matrix.deck, one.keys);
  } catch (const Error& problem) {
    throw of_case(problem, matrix, one);
  }
  return one;
}

/// All combinations, the first axis slowest.
std::vector<SweepCase> combinations(const io::Matrix& matrix) {
  std::size_t count = 1;
  for (const auto& axis : matrix.axes) {
    count *= axis.values.size();
    if (count > kMostCases) {
      throw Error(Failure::deck,
                  fmt::format("{}: more than {} cases; accepted: fewer axes or values", matrix.path, kMostCases));
    }
  }
  std::vector<SweepCase> cases;
  for (std::size_t number = 0; number < count; ++number) {
    std::vector<const io::AxisValue*> chosen(matrix.axes.size());
    std::size_t rest = number;
    for (std::size_t i = matrix.axes.size(); i-- > 0;) {
      const auto& values = matrix.axes[i].values;
      chosen[i] = &values[rest % values.size()];
      rest /= values.size();
    }
    cases.push_back(case_of(matrix, chosen));
  }
  return cases;
}

int threads_of(const io::Deck& deck, int cores) {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int wanted = given == nullptr ? 0 : std::atoi(given);
  if (deck.run.threads > 0) return static_cast<int>(deck.run.threads);
  return wanted > 0 ? wanted : std::max(1, cores / static_cast<int>(deck.run.ranks));
}

/// Speeds of this process's threads, measured once for models of one shape.
class Speeds {
 public:
  const plan::Speed& of(const train::Settings& settings) {
    const std::string shape = fmt::format("{} {} {}", static_cast<int>(settings.precision), settings.model.dim,
                                          settings.batch.micro_batch * settings.step.seq);
    const auto known = known_.find(shape);
    return known != known_.end() ? known->second : known_[shape] = plan::measured_speed(settings);
  }

 private:
  std::map<std::string, plan::Speed> known_;
};

/// Times that a run evaluates; 0 without validation data.
std::int64_t evaluations_of(const io::Deck& deck) {
  if (deck.data.val_fraction <= 0.0) return 0;
  const std::int64_t every = deck.train.eval_every, steps = deck.run.steps;
  if (every == 0) return 1;
  return steps / every + (steps % every == 0 ? 0 : 1);
}

/// The most sequences of one evaluation. A token of text has one byte or more.
std::int64_t most_sequences(const io::Deck& deck, const train::Settings& settings) {
  const std::int64_t asked = deck.train.eval_batches * settings.batch.global_batch;  // 0: all that are there
  if (deck.data.text.empty()) return asked;
  const auto bytes = static_cast<double>(data::total_bytes(data::find_text(deck.data.text)));
  const auto there = static_cast<std::int64_t>(deck.data.val_fraction * bytes / static_cast<double>(settings.step.seq));
  return asked == 0 ? there : std::min(asked, there);
}

/// Planned seconds of one evaluation: forward passes, a third of a micro-step's operations each, and in stage 3 one of
/// the two gathers of a micro-step.
double evaluation_time(const io::Deck& deck, const train::Settings& settings, const plan::MemoryPlan& plan,
                       const plan::StepTime& step, const plan::Rates& rates) {
  if (evaluations_of(deck) == 0) return 0.0;
  const auto micro_steps = static_cast<double>(settings.batch.micro_steps);
  const std::int64_t per_round = settings.batch.micro_batch * plan.num_ranks;
  const auto rounds = static_cast<double>((most_sequences(deck, settings) + per_round - 1) / per_round);
  double gather = 0.0;
  if (settings.zero.stage == 3 && plan.num_ranks > 1) {
    const auto bytes = static_cast<double>(plan.sent.gathered), calls = static_cast<double>(plan.sent.gathers);
    const double gbit = settings.comm.throttle_gbit;
    const double per_byte = std::max(gbit > 0.0 ? 8e-9 / gbit : 0.0, 1.0 / rates.link);
    gather = (bytes * per_byte + calls * std::max(1e-6 * settings.comm.latency_us, rates.latency_s)) / 2.0;
  }
  return rounds / micro_steps * ((step.products + step.streams) / 3.0 + gather);
}

void plan_case(SweepCase& one, Speeds& speeds, distributed::Communicator& alone) {
  const bool on_gpus = !program_on_gpus(one.deck).empty();
  io::Deck deck = run::with_initial_model(one.deck, alone);
  deck.plans_for_gpus = on_gpus;
  deck = run::without_device(deck);
  const bool chooses = deck.comm.backend == "auto";
  const std::string backend = chooses ? distributed::assumed_backend(one.ranks(), on_gpus) : deck.comm.backend;
  const train::Settings settings = train::settings_of(deck, one.ranks(), data::vocab_of(deck), 0);
  const plan::MemoryPlan plan = plan::memory_plan(settings, backend, one.ranks());
  one.planned_bytes = plan.needed().device;
  if (on_gpus) return;
  const int cores = static_cast<int>(std::ssize(cores_of(allowed_cpus())));
  const plan::Rates rates = plan::rates_at(speeds.of(settings), settings, one.ranks(), threads_of(deck, cores));
  const plan::StepTime time = plan::step_time(settings, plan, rates);
  one.step_s = time.total();
  one.evaluation_s = evaluation_time(one.deck, settings, plan, time, rates);
}

}  // namespace

std::string SweepCase::title(const io::Matrix& matrix) const {
  return matrix.repetitions == 1 ? name : fmt::format("{} ({} of {})", name, repetition, matrix.repetitions);
}

std::optional<double> SweepCase::planned_s() const {
  std::optional<double> seconds;
  if (step_s && deck.run.steps > 0) {
    const auto evaluations = static_cast<double>(evaluations_of(deck));
    seconds = *step_s * static_cast<double>(deck.run.steps) + evaluations * evaluation_s;
  }
  if (deck.run.max_minutes <= 0.0) return seconds;
  return std::min(60.0 * deck.run.max_minutes, seconds.value_or(60.0 * deck.run.max_minutes));
}

std::string host_program() {
  static const std::string kProgram = run::this_program().string();
  return kProgram;
}

void require_identity(const io::Matrix& matrix, const SweepCase& one, ContentHashes& hashes) {
  std::string why;
  try {
    if (identity_of(one, hashes) == one.identity) return;
    why = hashes.changed().empty() ? "the list of its data's files changed" : hashes.changed() + " changed";
  } catch (const Error& problem) {
    why = problem.what();
  } catch (const fs::filesystem_error& problem) {
    why = problem.what();
  }
  throw Error(Failure::input, fmt::format("sweep.dir = \"{}\": case {}: {} after the sweep had begun, and is a part of "
                                          "what identifies the case; restore it and call the sweep again, or give "
                                          "another folder, such as sweep.dir={}-2",
                                          matrix.dir, one.title(matrix), why, matrix.dir));
}

std::vector<SweepCase> cases_of(const io::Matrix& matrix, ContentHashes& hashes) {
  const std::vector<SweepCase> once = combinations(matrix);
  std::map<std::string, std::string> names;
  std::vector<SweepCase> cases;
  for (std::int64_t repetition = 1; repetition <= matrix.repetitions; ++repetition) {
    for (SweepCase one : once) {
      one.repetition = repetition;
      try {
        one.identity = identity_of(one, hashes);
      } catch (const Error& problem) {
        throw of_case(problem, matrix, one);
      } catch (const fs::filesystem_error& problem) {
        throw of_case(Error(Failure::input, problem.what()), matrix, one);
      }
      const auto [other, is_new] = names.emplace(one.identity, one.title(matrix));
      if (!is_new) {
        throw Error(Failure::deck, fmt::format("{}: the cases {} and {} are one: the same deck, data and program; "
                                               "accepted are axes whose values make a difference",
                                               matrix.path, other->second, one.title(matrix)));
      }
      one.folder = matrix.dir + "/cases/" + one.identity.substr(0, kFolderDigits);
      one.keys.push_back(run::text_override("run.dir", one.run_folder()));
      one.deck.run.dir = one.run_folder();
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

void plan_cases(std::vector<SweepCase>& cases, const distributed::Environment& environment, Only only) {
  const train::Runtime runtime(0, environment);
  MemoryLedger ledger;
  const auto alone = distributed::make_communicator("self", distributed::Ranks(0, 0, 1), ledger);
  Speeds speeds;
  for (SweepCase& one : cases) {
    if (only == Only::unplanned && one.planned_bytes > 0) continue;
    try {
      plan_case(one, speeds, *alone);
    } catch (const Error& problem) {
      throw Error(problem.failure(), "case " + one.name + ": " + problem.what());
    }
  }
}

}  // namespace kozero::commands
