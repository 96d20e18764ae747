// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plan.cpp: the command `plan`: the ranks, memory and machine of a plan, and remarks on its assumptions.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/session.hpp>
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "src/commands/plan_report.hpp"

namespace kozero::commands {

using program::DeckArguments;
using program::JsonOutput;
using program::OptionParser;
using run::Session;

namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

/// Three positive numbers separated by commas; nullopt for other text.
std::optional<plan::GivenRates> rates_in(const std::string& text) {
  std::istringstream numbers(text);
  double teraflops = 0.0;
  double memory = 0.0;
  double link = 0.0;
  char first = 0;
  char second = 0;
  numbers >> teraflops >> first >> memory >> second >> link;
  const bool good = numbers && numbers.peek() == std::istringstream::traits_type::eof() && first == ',' &&
                    second == ',' && teraflops > 0.0 && memory > 0.0 && link > 0.0;
  return good ? std::optional(plan::GivenRates{1e12 * teraflops, 1e9 * memory, 1e9 * link}) : std::nullopt;
}

/// The options of `plan`.
struct Question {
  DeckArguments deck;
  std::vector<std::int64_t> counts;
  std::int64_t memory = 0;      ///< bytes per rank; 0: free memory here, or the GPU's memory
  std::int64_t reserve = -1;    ///< bytes; < 0: estimated_reserve()
  std::string device = "host";  ///< this machine, or a GPU's name
  std::string rates;            ///< "": measured or published ones
  JsonOutput json;

  explicit Question(const Arguments& arguments) {
    OptionParser parser("plan");
    deck.add_to(parser);
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
    parser.add("--ranks", counts, "ranks to plan for, with commas")
        .type_name("LIST")
        .delimiter(',')
        .default_text("run.ranks")
        .between(std::int64_t{1}, kMostRanks);
    parser.add("--memory", memory, "memory per rank: 80GiB, 48GB, 512MiB")
        .default_text("what is free")
        .size(1, kMostBytes);
    parser.add("--reserve", reserve, "part of it for the CUDA context, NCCL and libraries")
        .default_text("1.5 GiB on GPUs and 0.5 GiB per NCCL communicator, an estimate; 0 on hosts")
        .size(0, kMostBytes);
    std::vector<std::string> devices = plan::published_gpus();
    devices.insert(devices.begin(), "host");
    parser.add("--device", device, "plan for such GPUs, or for this machine")
        .type_name("NAME")
        .one_of(devices)
        .rewrite([](std::string& text) {
          std::erase_if(text, [](char letter) { return letter == ' ' || letter == '-' || letter == '_'; });
          std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
          return std::string();  // "RTX 4090" is rtx4090
        });
    parser.add("--rates", rates, "sustained TFLOP/s, GB/s of memory, GB/s sent per rank, with commas: 180,700,25")
        .type_name("T,M,L")
        .default_text("measured here, or by --device")
        .check([](const std::string& text) {
          return rates_in(text) ? "" : fmt::format("\"{}\"; accepted: three numbers > 0, separated by commas", text);
        });
    json.add_to(parser);
    parser.parse(arguments);
  }

  [[nodiscard]] bool is_about_gpus() const { return device != "host"; }
};

PlannedRanks ranks_of(Session& session, int asked, bool on_gpus) {
  const io::Deck& deck = session.deck();
  PlannedRanks ranks;
  ranks.count = asked > 0 ? asked : static_cast<int>(deck.run.ranks);
  ranks.backend = deck.comm.backend;
  if (ranks.count == session.control().size() && !on_gpus) {
    ranks.backend = session.backend();
  } else if (deck.comm.backend == "auto") {
    const bool on_nodes = deck.zero.shard_group == "node" && ranks.count > train::assumed_ranks_per_node(deck);
    ranks.assumed = ranks.count > 1;
    ranks.backend = on_nodes && !on_gpus && kHostIsDevice
                        ? "mpi"
                        : distributed::assumed_backend(ranks.count, on_gpus || !kHostIsDevice);
  }
  return ranks;
}

/// The given memory, or this rank's share of the node's memory, or a whole GPU per rank.
plan::DeviceAndHost memory_of(const PlannedRanks& ranks, const Question& question) {
  if (question.memory > 0) {
    return {question.memory, kHostIsDevice && !question.is_about_gpus() ? question.memory : 0};
  }
  if (question.is_about_gpus()) return {plan::published_memory(question.device), 0};
  const std::int64_t on_host = io::available_memory();
  if (kHostIsDevice) return {on_host / ranks.count, on_host / ranks.count};
  return {device_memory().free, on_host / std::min(ranks.count, Kokkos::num_devices())};
}

void set_room(PlannedRanks& ranks, const Question& question) {
  ranks.reserve = question.reserve < 0 ? plan::estimated_reserve(ranks.plans.back()) : question.reserve;
  ranks.room = memory_of(ranks, question);
  const auto subtract = [&](std::int64_t& bytes) {
    if (bytes <= 0) return;
    if (bytes <= ranks.reserve) {
      throw Error(Failure::deck,
                  fmt::format("--memory: {} leave nothing beside the reserve of {}; give more, or --reserve SIZE",
                              io::readable_bytes(bytes), io::readable_bytes(ranks.reserve)));
    }
    bytes -= ranks.reserve;
  };
  subtract(ranks.room.device);
  if (kHostIsDevice && !question.is_about_gpus()) subtract(ranks.room.host);  // one memory
}

int cores_here() { return static_cast<int>(std::ssize(cores_of(allowed_cpus()))); }

plan::Rates rates_of(const PlannedRanks& ranks, const Question& question, const io::Deck& deck,
                     const plan::Speed& here) {
  const int threads =
      deck.run.threads > 0 ? static_cast<int>(deck.run.threads) : std::max(1, cores_here() / ranks.count);
  const train::Settings settings = train::settings_of(deck, ranks.count, data::vocab_of(deck), 0);
  plan::Rates rates = question.is_about_gpus() ? plan::published_rates(question.device, settings, ranks.count)
                                               : plan::rates_at(here, settings, ranks.count, threads);
  const auto given = rates_in(question.rates);
  if (given) rates = plan::with_given_rates(rates, *given);
  const std::string network = distributed::simulated_network(settings.comm);
  if (!network.empty()) rates.source += "; a simulated network of " + network;
  return rates;
}

/// The plan's assumptions about ranks that do not run, and the parts of memory that it omits.
std::string remarks_on_ranks(const PlannedRanks& ranks, const io::Deck& deck) {
  std::string text;
  if (ranks.assumed) {
    text = fmt::format("assumed: comm.backend = auto takes {}, {}\n", ranks.backend,
                       ranks.backend == "nccl"  ? "each rank having a GPU of its own"
                       : ranks.backend == "mpi" ? "the ranks being on several nodes"
                                                : "all ranks being on one node");
  }
  if (ranks.reserve > 0) {
    const char* const what = train::runs_on_gpus(deck) ? " for the CUDA context, NCCL and libraries, an estimate" : "";
    text += fmt::format("reserve: {} per rank{} (--reserve SIZE)\n", io::readable_bytes(ranks.reserve), what);
  }
  if (deck.zero.shard_group == "node" && deck.ranks_per_node == 0) {
    text += fmt::format("assumed: nodes of {} ranks\n", train::assumed_ranks_per_node(deck));
  }
  return text;
}

/// The deck's values that the plan ignores, and the effects of the deck on so many ranks.
std::string remarks_on_deck(const PlanReport& report, const Question& question) {
  const int cores = cores_here();
  const io::Deck& deck = report.deck;
  const bool on_gpus = train::runs_on_gpus(deck);
  std::string text;
  for (const std::string& key : report.dropped) {
    text += fmt::format("ignored: {} = {}\n", key,
                        on_gpus ? "disk, which runs on GPUs refuse"
                                : "host, which runs on the host refuse; plan for GPUs with --device h100");
  }
  if (kHostIsDevice && on_gpus) text += "workspace is that of this build's kernels, not of a GPU's\n";
  for (const PlannedRanks& ranks : report.all) {
    const train::BatchSizes batch = train::batch_sizes(deck, ranks.count);
    if (!on_gpus && question.rates.empty() && ranks.count > cores) {
      text += fmt::format("times are for {} ranks with a core each; this machine has {}\n", ranks.count, cores);
    }
    const std::int64_t given = question.memory;
    if (!on_gpus && given > 0 && given > io::available_memory() / ranks.count) {
      text += fmt::format(
          "note: {} x {} are more than is free here, and times are those of this processor; for GPUs "
          "give --device: {}\n",
          ranks.count, io::readable_bytes(given), fmt::join(plan::published_gpus(), ", "));
    }
    const std::int64_t granules = data::Granules({0, batch.global_batch}, batch.micro_batch).count();
    if (granules >= ranks.count) continue;
    text += fmt::format("{} ranks: {} have no work, a step has {} micro-batches\n", ranks.count, ranks.count - granules,
                        granules);
  }
  return text;
}

/// A plan needs no tokenizer if the number of its ids is known.
std::int64_t vocab_of(const io::Deck& deck) {
  try {
    return data::vocab_of(deck);
  } catch (const Error& problem) {
    const Preset* preset = find_preset(deck.model.preset);
    const bool is_known = preset != nullptr && preset->family.vocab > 0;
    throw Error(problem.failure(),
                fmt::format("{}; for a plan the number of ids is enough: model.vocab={}", problem.what(),
                            is_known ? fmt::format("{} of the preset", preset->family.vocab) : "N"));
  }
}

/// Prints the plan of the session's deck, or returns it as JSON if that is asked. Collective.
nlohmann::ordered_json answer(Session& session, const Question& question, const std::vector<std::string>& dropped) {
  PlanReport report{.deck = session.deck(), .all = {}, .dropped = dropped};
  const auto counts = question.counts.empty() ? std::vector<std::int64_t>{0} : question.counts;
  for (const std::int64_t count : counts) {
    report.all.push_back(ranks_of(session, static_cast<int>(count), question.is_about_gpus()));
  }
  const std::int64_t vocab = vocab_of(report.deck);
  distributed::agreed(session.control(), [&] {
    for (PlannedRanks& ranks : report.all) {
      ranks.plans = plan::plans_of_all_stages(report.deck, ranks.backend, ranks.count, vocab);
      set_room(ranks, question);
    }
  });
  if (!session.is_first_rank()) return {};
  const bool measures = !question.is_about_gpus() && question.rates.empty();
  const plan::Speed here =
      measures ? plan::measured_speed(train::settings_of(report.deck, report.all[0].count, vocab, 0)) : plan::Speed();
  for (PlannedRanks& ranks : report.all) ranks.rates = rates_of(ranks, question, report.deck, here);
  if (question.json.is_asked()) return report.json();
  const std::int64_t process = io::resident_memory().current - io::shares_of_others();
  std::cout << report.tables()
            << fmt::format(
                   "beside the arrays: {:.0f} MiB per rank for the program, MPI and libraries (this process now)\n",
                   static_cast<double>(process) / kMiB)
            << report.advice() << remarks_on_ranks(report.all.back(), report.deck) << remarks_on_deck(report, question);
  return {};
}

/// The same for each lesson of a curriculum.
nlohmann::ordered_json answer_of_lessons(Session& session, const Question& question,
                                         const std::vector<std::string>& dropped) {
  const io::Deck whole = session.deck();
  nlohmann::ordered_json lessons = nlohmann::ordered_json::array();
  for (std::size_t lesson = 0; lesson < whole.run.curriculum.size(); ++lesson) {
    session.use_deck(io::deck_of_lesson(whole, lesson));
    const int ranks =
        question.counts.empty() ? static_cast<int>(whole.run.ranks) : static_cast<int>(question.counts[0]);
    const train::StepRange steps = train::steps_of_lesson(session.deck(), ranks);
    if (session.is_first_rank() && !question.json.is_asked()) {
      std::cout << fmt::format("{}lesson {} of {}: steps {} to {}\n", lesson == 0 ? "" : "\n", lesson + 1,
                               whole.run.curriculum.size(), steps.first + 1, steps.last);
    }
    lessons.push_back(answer(session, question, dropped));
    lessons.back()["first_step"] = steps.first + 1;
    lessons.back()["last_step"] = steps.last;
  }
  return {{"lessons", lessons}};
}

}  // namespace

void plan(const distributed::Environment& environment, const Arguments& arguments) {
  const Question question(arguments);
  std::vector<std::string> dropped;
  Session session(environment, [&](distributed::Communicator& comm) {
    io::Deck given = question.deck.read(comm);
    given.plans_for_gpus = question.is_about_gpus();
    const char* const refused = train::runs_on_gpus(given) ? "disk" : "host";
    if (given.zero.offload_optimizer == refused) dropped.emplace_back("zero.offload_optimizer");
    if (given.zero.offload_parameters == refused) dropped.emplace_back("zero.offload_parameters");
    return run::without_device(given);
  });
  const bool has_lessons = !session.deck().run.curriculum.empty();
  const auto json = has_lessons ? answer_of_lessons(session, question, dropped) : answer(session, question, dropped);
  if (session.is_first_rank() && question.json.is_asked()) question.json.print(json);
}

}  // namespace kozero::commands
