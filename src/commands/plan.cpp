// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>
#include <kozero/train/data_set.hpp>
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/program.hpp"
#include "src/commands/session.hpp"

namespace kozero::commands {
namespace {

/// Between which ranks the plan's data travel, and how.
struct Ranks {
  int count;
  std::string backend;
  bool assumed;  ///< comm.backend = auto, of ranks that are not here to be asked
};

Ranks ranks_of(Session& session, int asked, bool on_gpus) {
  const io::Deck& deck = session.deck();
  const int count = asked > 0 ? asked : static_cast<int>(deck.run.ranks);
  if (count == session.control().size() && !on_gpus) return {count, session.backend(), false};
  const bool assumed = deck.comm.backend == "auto";
  const bool on_nodes = deck.zero.shard_group == "node" && count > train::assumed_ranks_a_node(deck);
  if (assumed && on_nodes && !on_gpus && kHostIsDevice) return {count, "mpi", true};
  return {count, assumed ? dist::assumed_backend(count, on_gpus || !kHostIsDevice) : deck.comm.backend,
          assumed && count > 1};
}

constexpr std::int64_t kMostRanks = 1 << 20;

/// Bytes of "80GiB", "48GB"; 0 of anything else.
std::int64_t bytes_in(const std::string& text) {
  constexpr double kMost = 0x1p50;
  const double bytes = io::bytes_of_text(text).value_or(0);
  return bytes >= 1 && bytes <= kMost ? static_cast<std::int64_t>(bytes) : 0;
}

/// The plan's question: for whom, with which memory, on which machine.
struct Machine {
  std::string memory;  ///< what a rank may take; "": what is free here, or what the device has
  std::string device = "host";  ///< "a100", ...; this one
  std::vector<std::string> dropped = {};  ///< keys of offloading whose value its runs refuse; planned as none

  [[nodiscard]] bool is_gpu() const { return device != "host"; }
};

/// What each may take: the memory where given, else its share of this node, or a GPU of its own and its share of a node
/// with a rank a GPU.
plan::DeviceAndHost room_of(const Ranks& ranks, const Machine& machine) {
  if (const std::int64_t given = bytes_in(machine.memory); given > 0) {
    return {given, kHostIsDevice && !machine.is_gpu() ? given : 0};
  }
  if (machine.is_gpu()) return {plan::published_memory(machine.device), 0};
  const std::int64_t on_host = io::available_memory();
  if (kHostIsDevice) return {on_host / ranks.count, on_host / ranks.count};
  return {device_memory().free, on_host / std::min(ranks.count, Kokkos::num_devices())};
}

std::string remarks_on(const Ranks& ranks) {
  std::string text;
  if (ranks.assumed) {
    text = "assumed: comm.backend = auto takes " + ranks.backend +
           (ranks.backend == "nccl"  ? ", each rank having a GPU of its own"
            : ranks.backend == "mpi" ? ", the ranks being on several nodes"
                                     : ", all ranks being on one node") +
           "\n";
  }
  return text +
         (ranks.backend == "nccl" ? "not in it: what NCCL takes of each GPU, which a run measures and books\n" : "");
}

/// What of the deck is not in the plan, and what it does on so many ranks.
std::string remarks_on_deck(const io::Deck& deck, const std::vector<Ranks>& all, const Machine& machine) {
  std::string text;
  for (const std::string& key : machine.dropped) {
    text += fmt::format("ignored: {} = {}\n", key,
                        machine.is_gpu() || !kHostIsDevice
                            ? "disk, which runs on GPUs refuse"
                            : "host, which runs on the host refuse; plan for GPUs with --device h100");
  }
  if (kHostIsDevice && machine.is_gpu()) text += "workspace is that of this build's kernels, not of a GPU's\n";
  for (const Ranks& ranks : all) {
    const train::BatchSizes batch = train::batch_sizes(deck, ranks.count);
    const auto cores = static_cast<int>(std::ssize(cores_of(allowed_cpus())));
    if (!train::runs_on_gpus(deck) && ranks.count > cores) {
      text += fmt::format("seconds are for {} ranks with a core each; this machine has {}\n", ranks.count, cores);
    }
    const std::int64_t granules = train::Granules({0, batch.global_batch}, batch.micro_batch).count();
    if (granules >= ranks.count) continue;
    text += fmt::format("{} ranks: {} have no work, a step has {} micro-batches\n", ranks.count, ranks.count - granules,
                        granules);
  }
  return text;
}

/// What "node" is taken for, of ranks that are not here to be asked.
std::string remark_on_nodes(const io::Deck& deck) {
  if (deck.zero.shard_group != "node" || deck.ranks_a_node > 0) return "";
  return fmt::format("assumed: nodes of {} ranks\n", train::assumed_ranks_a_node(deck));
}

std::vector<plan::Rates> rates_of(const io::Deck& deck, const std::vector<Ranks>& all, const Machine& machine) {
  const auto settings_on = [&](const Ranks& ranks) {
    return train::settings_of(deck, ranks.count, train::vocab_of(deck), 0);
  };
  const plan::Speed here = machine.is_gpu() ? plan::Speed() : plan::measured_speed(settings_on(all[0]));
  const int cores = static_cast<int>(std::ssize(cores_of(allowed_cpus())));
  std::vector<plan::Rates> rates;
  for (const Ranks& ranks : all) {
    const int threads = deck.run.threads > 0 ? static_cast<int>(deck.run.threads) : std::max(1, cores / ranks.count);
    rates.push_back(machine.is_gpu() ? plan::published_rates(machine.device, settings_on(ranks), ranks.count)
                                     : plan::rates_at(here, settings_on(ranks), ranks.count, threads));
  }
  return rates;
}

std::vector<plan::Recomputed> plans_recomputed(const io::Deck& deck, const Ranks& ranks) {
  return plan::plans_recomputed(deck, ranks.backend, ranks.count, train::vocab_of(deck));
}

plan::StepTime time_of(const io::Deck& deck, const plan::MemoryPlan& plan, const plan::Rates& rates) {
  return plan::step_time(train::settings_of(deck, plan.num_ranks, train::vocab_of(deck), 0), plan, rates);
}

/// The estimate of each stage.
std::vector<plan::StepTime> times_of(const io::Deck& deck, const std::vector<plan::MemoryPlan>& plans,
                                     const plan::Rates& rates) {
  std::vector<plan::StepTime> times;
  for (const plan::MemoryPlan& plan : plans) {
    io::Deck changed = deck;
    changed.zero.stage = plan.stage;
    if (plan.stage >= 2) changed.zero.accumulation = "ordered";
    times.push_back(time_of(changed, plan, rates));
  }
  return times;
}

/// A line of a value for each stage, in the columns of plan::totals_of.
template <class Value>
std::string line_of(const Ranks& ranks, const char* what, const Value& value) {
  std::string line = fmt::format("{:>5} {:<23}", ranks.count, what);
  for (int stage = 0; stage <= 3; ++stage) line += fmt::format("{:>14} ", value(static_cast<std::size_t>(stage)));
  return line + "\n";
}

void print_totals(const std::vector<std::vector<plan::MemoryPlan>>& plans, const std::vector<Ranks>& all,
                  const io::Deck& deck, const Machine& machine, const std::vector<plan::Rates>& rates) {
  std::cout << fmt::format("{}: {} parameters, {}; MiB on the fullest rank, * where it fits\n\n{:<29}", escaped(deck.source),
                           plans[0].front().num_parameters, name_of(plans[0].front().precision),
                           "ranks back end   recompute");
  for (int stage = 0; stage <= 3; ++stage) std::cout << fmt::format("{:>14} ", fmt::format("stage {}", stage));
  std::cout << "\n";
  for (const Ranks& ranks : all) {
    std::cout << plan::totals_of(deck, ranks.backend, ranks.count, train::vocab_of(deck), room_of(ranks, machine));
  }
  std::cout << "\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::cout << line_of(all[i], "MiB sent a step, mean", [&](std::size_t stage) {
      return fmt::format("{:.1f}", static_cast<double>(plans[i][stage].sent.all) / (1 << 20));
    });
  }
  std::cout << "\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto times = times_of(deck, plans[i], rates[i]);
    std::cout << line_of(all[i], "seconds, estimated",
                         [&](std::size_t stage) { return fmt::format("{:.3g}", times[stage].total()); });
  }
  std::cout << "\nrates: " << rates.back().source << "\n";
}

/// Those of the fit, and "none" for each key whose value its runs refuse, unless the fit has another.
std::vector<std::string> overrides_of(const plan::Fit& fit, const Machine& machine) {
  std::vector<std::string> overrides = fit.overrides;
  for (const std::string& key : machine.dropped) {
    const auto sets = [&](const std::string& text) { return text.starts_with(key + "="); };
    if (std::ranges::none_of(overrides, sets)) overrides.push_back(key + "=none");
  }
  return overrides;
}

/// What to run on these ranks, with the overrides that make it fit.
std::string advice_for(const Ranks& ranks, const io::Deck& deck, const Machine& machine, const plan::Rates& rates) {
  const plan::DeviceAndHost room = room_of(ranks, machine);
  if (room.device <= 0 && room.host <= 0) return "";
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const auto fit = plan::first_fit(deck, ranks.backend, ranks.count, train::vocab_of(deck), room);
  const std::string who = fmt::format("{} rank{}: ", ranks.count, ranks.count == 1 ? "" : "s");
  if (!fit) return who + "nothing that plan tries fits: use more ranks or a smaller model\n";
  const auto gib = [&](const plan::MemoryPlan& plan) { return static_cast<double>(plan.needed().device) / kGiB; };
  std::string text = who;
  const auto overrides = overrides_of(*fit, machine);
  text += overrides.empty() ? "fits as it is" : fmt::format("fits with {}", fmt::join(overrides, " "));
  text += fmt::format(" ({:.1f} GiB", gib(fit->plan));
  if (const std::int64_t disk = fit->plan.of(Memory::disk); disk > 0) {
    text += fmt::format(", and {:.1f} GiB of disk", static_cast<double>(disk) / kGiB);
  }
  if (fit->deck.zero.offload_optimizer == "host" || fit->deck.zero.offload_parameters == "host") {
    text += fmt::format(", and {:.1f} GiB of the host's", static_cast<double>(fit->plan.needed().host) / kGiB);
  }
  text += fmt::format(", {:.2g} s a step)", time_of(fit->deck, fit->plan, rates).total());
  if (fit->largest_micro_batch > fit->plan.micro_batch) {
    text += fmt::format(", up to train.micro_batch={}", fit->largest_micro_batch);
    const std::int64_t accumulated = deck.train.micro_batch * deck.train.accumulate;
    if (accumulated > 0) text += fmt::format(" train.accumulate={}", accumulated / fit->largest_micro_batch);
    text += fmt::format(" ({:.1f} GiB)", gib(fit->at_largest));
  }
  if (fit->in_groups) {
    const plan::MemoryPlan& groups = *fit->in_groups;
    std::vector<std::string> others = overrides;
    std::erase(others, "zero.shard_group=all");
    text += fmt::format(
        "\n{}sends {:.1f} GiB a step between groups in place of {:.1f} with {}zero.shard_group={} ({:.1f} GiB)", who,
        static_cast<double>(groups.sent.across) / kGiB,
        static_cast<double>(plan::sent_beyond(fit->plan, groups.ranks_a_group)) / kGiB,
        others.empty() ? "" : fmt::format("{} ", fmt::join(others, " ")), groups.ranks_a_group, gib(groups));
  }
  return text + "\n";
}

std::string table_of(const std::vector<plan::StepTime>& times, const plan::Rates& rates) {
  std::string table = fmt::format("{:<28}", "seconds a step, estimated");
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    table += fmt::format("{:>14}", fmt::format("stage {}", stage));
  }
  table += "\n";
  const auto row = [&](const char* name, auto value) {
    double sum = 0.0;
    for (const auto& time : times) sum += value(time);
    if (!(sum > 0.0)) return;
    table += fmt::format("{:<28}", name);
    for (const auto& time : times) table += fmt::format("{:>14.3g}", value(time));
    table += "\n";
  };
  row("products", [](const plan::StepTime& time) { return time.products; });
  row("memory", [](const plan::StepTime& time) { return time.streams; });
  row("update", [](const plan::StepTime& time) { return time.update; });
  row("communication", [](const plan::StepTime& time) { return time.communication; });
  row("disk, 1 GB/s for all ranks", [](const plan::StepTime& time) { return time.disk; });
  row("total", [](const plan::StepTime& time) { return time.total(); });
  row("behind it: communication", [](const plan::StepTime& time) { return time.hidden; });
  table += fmt::format("{:<28}", "limited by");
  for (const auto& time : times) table += fmt::format("{:>14}", time.limit());
  return table + "\nrates: " + rates.source + "\n";
}

/// What single overrides change in the deck's stage.
std::string alternatives_of(const io::Deck& deck, const Ranks& ranks, const plan::Rates& rates) {
  const std::string heading = fmt::format("one change at a time, stage {}", deck.zero.stage);
  std::string table = fmt::format("\n{:<40}{:>10}{:>12}\n", heading, "MiB", "s a step");
  for (const auto& one : plan::alternatives(deck, ranks.backend, ranks.count, train::vocab_of(deck))) {
    table += fmt::format("{:<40}{:>10.1f}{:>12.3g}\n", one.override.empty() ? "none" : one.override,
                         static_cast<double>(one.plan.needed().device) / (1 << 20),
                         time_of(one.deck, one.plan, rates).total());
  }
  return table;
}

nlohmann::ordered_json json_of(const plan::StepTime& time) {
  return {{"products", time.products}, {"memory", time.streams},
          {"update", time.update},     {"communication", time.communication},
          {"hidden", time.hidden},     {"disk", time.disk},
          {"total", time.total()},     {"limit", time.limit()}};
}

nlohmann::ordered_json stages_of(const std::vector<plan::MemoryPlan>& plans, const std::vector<plan::StepTime>& times) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < plans.size(); ++s) {
    const plan::MemoryPlan& plan = plans[s];
    nlohmann::ordered_json stage = {
        {"stage", plan.stage},
        {"ranks", plan.num_ranks},
        {"total", plan.total()},
        {"device", plan.needed().device},
        {"host", plan.needed().host},
        {"sent", plan.sent.all},
        {"sent_across_groups", plan.sent.across},
        {"ranks_a_group", plan.ranks_a_group},
        {"seconds", json_of(times[s])},
        {"formula", plan::model_state_bytes(plan.precision, plan.stage, plan.num_parameters, plan.ranks_a_group)}};
    for (std::size_t i = 0; i < kMemoryNames.size(); ++i) stage[std::string(kMemoryNames[i])] = plan.bytes[i];
    stages.push_back(stage);
  }
  return stages;
}

/// The stages of all numbers of ranks in one list, and for each number what fits.
nlohmann::ordered_json json_of(const std::vector<std::vector<plan::MemoryPlan>>& plans, const std::vector<Ranks>& all,
                               const io::Deck& deck, const Machine& machine, const std::vector<plan::Rates>& rates) {
  nlohmann::ordered_json json = {{"parameters", plans[0].front().num_parameters},
                                 {"precision", name_of(plans[0].front().precision)},
                                 {"backend", all[0].backend},
                                 {"stages", nlohmann::ordered_json::array()},
                                 {"recomputed", nlohmann::ordered_json::array()},
                                 {"fits", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    json["rates"] = rates[i].source;
    const auto add = [&](const char* list, const io::Deck& planned, const std::vector<plan::MemoryPlan>& of_stages) {
      for (auto& stage : stages_of(of_stages, times_of(planned, of_stages, rates[i]))) {
        stage["recompute"] = planned.train.recompute;
        json[list].push_back(stage);
      }
    };
    add("stages", deck, plans[i]);
    for (const auto& level : plans_recomputed(deck, all[i])) {
      io::Deck changed = deck;
      changed.train.recompute = level.recompute;
      add("recomputed", changed, level.plans);
    }
    const auto fit =
        plan::first_fit(deck, all[i].backend, all[i].count, train::vocab_of(deck), room_of(all[i], machine));
    nlohmann::ordered_json one = {{"ranks", all[i].count}, {"fits", fit.has_value()}};
    if (fit) {
      one["overrides"] = overrides_of(*fit, machine);
      one["total"] = fit->plan.total();
      one["device"] = fit->plan.needed().device;
      one["host"] = fit->plan.needed().host;
      one["largest_micro_batch"] = fit->largest_micro_batch;
      if (fit->in_groups) one["shard_group"] = fit->in_groups->ranks_a_group;
      one["disk"] = fit->plan.of(Memory::disk);
      one["seconds"] = time_of(fit->deck, fit->plan, rates[i]).total();
    }
    one["alternatives"] = nlohmann::ordered_json::array();
    for (const auto& other : plan::alternatives(deck, all[i].backend, all[i].count, train::vocab_of(deck))) {
      one["alternatives"].push_back({{"override", other.override},
                                     {"device", other.plan.needed().device},
                                     {"host", other.plan.needed().host},
                                     {"disk", other.plan.of(Memory::disk)},
                                     {"seconds", time_of(other.deck, other.plan, rates[i]).total()}});
    }
    one["backend"] = all[i].backend;
    one["rates"] = rates[i].source;
    json["fits"].push_back(one);
  }
  return json;
}

}  // namespace

void plan(const dist::Environment& environment, const Arguments& arguments) {
  OptionParser parser("plan");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  std::vector<std::int64_t> counts;
  Machine machine;
  parser.add("--ranks", counts, "ranks to plan for, with commas")
      .type_name("LIST")
      .delimiter(',')
      .default_text("run.ranks")
      .between(std::int64_t{1}, kMostRanks);
  parser.add("--memory", machine.memory, "what a rank may take: 80GiB, 48GB, 512MiB")
      .type_name("SIZE")
      .default_text("what is free")
      .check([](const std::string& text) {
        return bytes_in(text) > 0 ? "" : fmt::format("\"{}\"; accepted: a number and MiB, GiB, MB or GB", text);
      });
  parser.add("--device", machine.device, "plan for such GPUs, or for this machine")
      .type_name("NAME")
      .one_of({"host", "a100", "h100", "h200"});
  JsonOutput json;
  json.add_to(parser);
  parser.parse(arguments);

  Session session(environment, [&](dist::Communicator& comm) {
    io::Deck given = deck_arguments.read(comm);
    given.plans_for_gpus = machine.is_gpu();
    const char* const refused = train::runs_on_gpus(given) ? "disk" : "host";
    if (given.zero.offload_optimizer == refused) machine.dropped.emplace_back("zero.offload_optimizer");
    if (given.zero.offload_parameters == refused) machine.dropped.emplace_back("zero.offload_parameters");
    return without_device(given);
  });
  const io::Deck& deck = session.deck();
  if (counts.empty()) counts = {0};
  std::vector<Ranks> all;
  for (const std::int64_t count : counts) {
    all.push_back(ranks_of(session, static_cast<int>(count), machine.is_gpu()));
  }
  const auto plans = dist::agreed(session.control(), [&] {
    std::vector<std::vector<plan::MemoryPlan>> by_count;
    for (const Ranks& ranks : all) {
      by_count.push_back(plan::plans_of_all_stages(deck, ranks.backend, ranks.count, train::vocab_of(deck)));
    }
    return by_count;
  });
  if (!session.is_first_rank()) return;
  const std::vector<plan::Rates> rates = rates_of(deck, all, machine);
  if (json.is_asked()) return json.print(json_of(plans, all, deck, machine, rates));
  if (all.size() == 1) {
    std::cout << escaped(deck.source) << ": " << plans[0].front().num_parameters << " parameters on " << all[0].count
              << (all[0].count == 1 ? " rank" : " ranks") << "; the deck asks for stage " << deck.zero.stage << "\n\n"
              << plan::table_of(plans[0], room_of(all[0], machine))
              << plan::table_of(plans_recomputed(deck, all[0]), plans[0]) << "\n";
    std::cout << table_of(times_of(deck, plans[0], rates[0]), rates[0]) << alternatives_of(deck, all[0], rates[0]);
  } else {
    print_totals(plans, all, deck, machine, rates);
  }
  const std::int64_t process = io::resident_memory().current - io::shares_of_others();
  std::cout << fmt::format(
      "beside the arrays: {:.0f} MiB a rank for the program, MPI and libraries (this process now)\n",
      static_cast<double>(process) / (1 << 20));
  for (std::size_t i = 0; i < all.size(); ++i) std::cout << advice_for(all[i], deck, machine, rates[i]);
  std::cout << remarks_on(all.back()) << remark_on_nodes(deck) << remarks_on_deck(deck, all, machine);
}

}  // namespace kozero::commands
