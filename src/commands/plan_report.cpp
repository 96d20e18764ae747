// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plan_report.cpp: the tables, advice and JSON of `plan`, from the memory plans and step times of all stages.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include <kozero/core/error.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/train/settings.hpp>
#include "io/posix/readable.hpp"
#include "src/commands/plan_report.hpp"

namespace kozero::commands {

std::string duration_text(double seconds) {
  if (seconds < 1.0) return fmt::format("{:.{}f} ms", 1e3 * seconds, seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0);
  return seconds < 100.0 ? fmt::format("{:.{}f} s", seconds, seconds < 10.0 ? 2 : 1) : io::readable_seconds(seconds);
}

namespace {

std::vector<plan::Recomputed> plans_recomputed(const io::Deck& deck, const PlannedRanks& ranks) {
  return plan::plans_recomputed(deck, ranks.backend, ranks.count, data::vocab_of(deck));
}

std::vector<plan::Alternative> alternatives(const io::Deck& deck, const PlannedRanks& ranks) {
  return plan::alternatives(deck, ranks.backend, ranks.count, data::vocab_of(deck));
}

plan::StepTime time_of(const io::Deck& deck, const plan::MemoryPlan& plan, const plan::Rates& rates) {
  return plan::step_time(train::settings_of(deck, plan.num_ranks, data::vocab_of(deck), 0), plan, rates);
}

/// The estimate of each stage.
std::vector<plan::StepTime> times_of(const io::Deck& deck, const std::vector<plan::MemoryPlan>& plans,
                                     const plan::Rates& rates) {
  std::vector<plan::StepTime> times;
  for (const plan::MemoryPlan& plan : plans) times.push_back(time_of(plan::in_stage(deck, plan.stage), plan, rates));
  return times;
}

/// A line with one value per stage, in the columns of plan::totals_of.
template <class Value>
std::string line_of(const PlannedRanks& ranks, const char* what, const Value& value) {
  std::string line = fmt::format("{:>5} {:<23}", ranks.count, what);
  for (int stage = 0; stage <= 3; ++stage) line += fmt::format("{:>14} ", value(static_cast<std::size_t>(stage)));
  return line + "\n";
}

std::string totals_of(const io::Deck& deck, const std::vector<PlannedRanks>& all) {
  std::vector<plan::MemoryPlan> plans;
  for (const PlannedRanks& ranks : all) plans.insert(plans.end(), ranks.plans.begin(), ranks.plans.end());
  const plan::SizeUnit unit = plan::unit_of(plans);
  const plan::MemoryPlan& first = all[0].plans.front();
  std::string text = fmt::format("{}: {} parameters, {}; {}{} on the fullest rank, * if it fits\n\n{:<29}",
                                 escaped(deck.source), first.num_parameters, name_of(first.precision), unit.name,
                                 first.on_gpus ? " of GPU memory" : "", "ranks back end   recompute");
  for (int stage = 0; stage <= 3; ++stage) text += fmt::format("{:>14} ", fmt::format("stage {}", stage));
  text += "\n";
  for (const PlannedRanks& ranks : all) {
    text += plan::totals_of(deck, ranks.backend, ranks.count, data::vocab_of(deck), ranks.room, unit);
  }
  const auto lines_of_bytes = [&](const char* what, const auto& bytes) {
    text += "\n";
    for (const PlannedRanks& ranks : all) {
      text += line_of(ranks, fmt::format("{} {}", unit.name, what).c_str(), [&](std::size_t stage) {
        return plan::text_in(unit, static_cast<double>(bytes(ranks.plans[stage])));
      });
    }
  };
  if (first.on_gpus) lines_of_bytes("of host memory", [](const auto& plan) { return plan.needed().host; });
  lines_of_bytes("sent per step", [](const auto& plan) { return plan.sent.all; });
  text += "\n";
  for (const PlannedRanks& ranks : all) {
    const auto times = times_of(deck, ranks.plans, ranks.rates);
    text += line_of(ranks, "step, estimated", [&](std::size_t stage) { return duration_text(times[stage].total()); });
  }
  return text + "\nrates: " + all.back().rates.source + "\n";
}

/// The overrides of `changes`, and "key=none" for each dropped key without an override among them.
std::vector<std::string> overrides_of(const std::vector<plan::Change>& changes,
                                      const std::vector<std::string>& dropped) {
  std::vector<std::string> overrides;
  for (const plan::Change& change : changes) overrides.push_back(change.text());
  for (const std::string& key : dropped) {
    const auto sets = [&](const plan::Change& change) { return change.key == key; };
    if (std::ranges::none_of(changes, sets)) overrides.push_back(key + "=none");
  }
  return overrides;
}

std::optional<plan::Fit> fit_of(const io::Deck& deck, const PlannedRanks& ranks) {
  return plan::first_fit(deck, ranks.backend, ranks.count, data::vocab_of(deck), ranks.room);
}

/// A fit in another stage.
struct Faster {
  io::Deck deck;
  plan::MemoryPlan plan;
  double seconds = 0.0;
};

/// The fastest stage that fits with the fit's other changes, if a step is at least 5 % faster.
std::optional<Faster> faster_stage(const plan::Fit& fit, const PlannedRanks& ranks) {
  constexpr double kWorthIt = 0.95;
  double least = kWorthIt * time_of(fit.deck, fit.plan, ranks.rates).total();
  std::optional<Faster> best;
  for (const auto& plan : plan::plans_of_all_stages(fit.deck, ranks.backend, ranks.count, data::vocab_of(fit.deck))) {
    if (!plan.needed().fit(ranks.room)) continue;
    const io::Deck deck = plan::in_stage(fit.deck, plan.stage);
    const double seconds = time_of(deck, plan, ranks.rates).total();
    if (seconds >= least) continue;
    least = seconds;
    best = Faster{deck, plan, seconds};
  }
  return best;
}

/// "(46.1 GiB per rank, 1.9 GiB to spare, 3.3 s per step)"
std::string cost_of(const io::Deck& deck, const plan::MemoryPlan& plan, const PlannedRanks& ranks) {
  std::string text = fmt::format("({} per rank", io::readable_bytes(plan.needed().device));
  if (ranks.room.device > 0) {
    text += fmt::format(", {} to spare", io::readable_bytes(ranks.room.device - plan.needed().device));
  }
  if (const std::int64_t disk = plan.of(Memory::disk); disk > 0) {
    text += fmt::format(", and {} of disk", io::readable_bytes(disk));
  }
  if (deck.zero.offload_optimizer == "host" || deck.zero.offload_parameters == "host") {
    text += fmt::format(", and {} of the host's", io::readable_bytes(plan.needed().host));
  }
  return text + fmt::format(", {} per step)", duration_text(time_of(deck, plan, ranks.rates).total()));
}

/// Advice for these ranks: the overrides with which the deck fits.
std::string advice_for(const PlannedRanks& ranks, const io::Deck& deck, const std::vector<std::string>& dropped) {
  if (ranks.room.device <= 0 && ranks.room.host <= 0) return "";
  const std::string who = fmt::format("{} rank{}: ", ranks.count, ranks.count == 1 ? "" : "s");
  const auto fit = fit_of(deck, ranks);
  if (!fit) return who + "nothing that plan tries fits: use more ranks or a smaller model\n";
  const auto overrides = overrides_of(fit->changes, dropped);
  std::string text = who;
  text += overrides.empty() ? "fits as it is " : fmt::format("fits with {} ", fmt::join(overrides, " "));
  text += cost_of(fit->deck, fit->plan, ranks);
  if (fit->largest_micro_batch > fit->plan.micro_batch) {
    text += fmt::format(", up to train.micro_batch={}", fit->largest_micro_batch);
    const std::int64_t accumulated = deck.train.micro_batch * deck.train.accumulate;
    if (accumulated > 0) text += fmt::format(" train.accumulate={}", accumulated / fit->largest_micro_batch);
    text += fmt::format(" ({})", io::readable_bytes(fit->at_largest.needed().device));
  }
  if (const auto faster = faster_stage(*fit, ranks)) {
    const double before = time_of(fit->deck, fit->plan, ranks.rates).total();
    const auto changes = overrides_of(plan::changes_between(deck, faster->deck), dropped);
    text += fmt::format("\n{}recommended: {}, estimated {:.0f} % less time {}", who,
                        changes.empty() ? "the deck as it is" : fmt::format("{}", fmt::join(changes, " ")),
                        100.0 * (1.0 - faster->seconds / before), cost_of(faster->deck, faster->plan, ranks));
  }
  if (fit->in_groups) {
    const plan::MemoryPlan& groups = *fit->in_groups;
    io::Deck grouped = fit->deck;
    grouped.zero.shard_group = std::int64_t{groups.ranks_per_group};
    text += fmt::format("\n{}sends {} per step between groups in place of {} with {} ({})", who,
                        io::readable_bytes(groups.sent.across),
                        io::readable_bytes(plan::sent_beyond(fit->plan, groups.ranks_per_group)),
                        fmt::join(overrides_of(plan::changes_between(deck, grouped), dropped), " "),
                        io::readable_bytes(groups.needed().device));
  }
  return text + "\n";
}

std::string table_of(const std::vector<plan::StepTime>& times, const plan::Rates& rates) {
  std::string table = fmt::format("{:<28}", "time per step, estimated");
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    table += fmt::format("{:>14}", fmt::format("stage {}", stage));
  }
  table += "\n";
  const auto row = [&](const char* name, auto value) {
    double sum = 0.0;
    for (const auto& time : times) sum += value(time);
    if (!(sum > 0.0)) return;
    table += fmt::format("{:<28}", name);
    for (const auto& time : times) table += fmt::format("{:>14}", duration_text(value(time)));
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

/// Memory and time with single changes, in the deck's stage.
std::string alternatives_of(const io::Deck& deck, const PlannedRanks& ranks) {
  const auto all = alternatives(deck, ranks);
  const plan::SizeUnit unit = plan::unit_of(ranks.plans);
  const std::string heading = fmt::format("one change at a time, stage {}", deck.zero.stage);
  std::string table = fmt::format("\n{:<40}{:>10}{:>16}\n", heading, unit.name, "per step");
  for (const auto& one : all) {
    const auto changes = plan::changes_between(deck, one.deck);
    table += fmt::format("{:<40}{:>10}{:>16}\n", changes.empty() ? "none" : changes[0].text(),
                         plan::text_in(unit, static_cast<double>(one.plan.needed().device)),
                         duration_text(time_of(one.deck, one.plan, ranks.rates).total()));
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
    nlohmann::ordered_json stage = {{"stage", plan.stage},
                                    {"ranks", plan.num_ranks},
                                    {"total", plan.total()},
                                    {"device", plan.needed().device},
                                    {"host", plan.needed().host},
                                    {"sent", plan.sent.all},
                                    {"sent_across_groups", plan.sent.across},
                                    {"ranks_per_group", plan.ranks_per_group},
                                    {"seconds", json_of(times[s])},
                                    {"formula", plan::model_state_bytes(plan)}};
    for (std::size_t i = 0; i < kMemoryNames.size(); ++i) stage[std::string(kMemoryNames[i])] = plan.bytes[i];
    stages.push_back(stage);
  }
  return stages;
}

nlohmann::ordered_json fit_json(const PlannedRanks& ranks, const io::Deck& deck,
                                const std::vector<std::string>& dropped) {
  const auto fit = fit_of(deck, ranks);
  nlohmann::ordered_json one = {{"ranks", ranks.count}, {"fits", fit.has_value()}};
  if (fit) {
    one["overrides"] = overrides_of(fit->changes, dropped);
    one["total"] = fit->plan.total();
    one["device"] = fit->plan.needed().device;
    one["host"] = fit->plan.needed().host;
    if (ranks.room.device > 0) one["spare"] = ranks.room.device - fit->plan.needed().device;
    one["largest_micro_batch"] = fit->largest_micro_batch;
    if (fit->in_groups) one["shard_group"] = fit->in_groups->ranks_per_group;
    one["disk"] = fit->plan.of(Memory::disk);
    one["seconds"] = time_of(fit->deck, fit->plan, ranks.rates).total();
    if (const auto faster = faster_stage(*fit, ranks)) {
      one["recommended"] = {{"overrides", overrides_of(plan::changes_between(deck, faster->deck), dropped)},
                            {"device", faster->plan.needed().device},
                            {"seconds", faster->seconds}};
    }
  }
  one["alternatives"] = nlohmann::ordered_json::array();
  for (const auto& other : alternatives(deck, ranks)) {
    const auto changes = plan::changes_between(deck, other.deck);
    one["alternatives"].push_back({{"override", changes.empty() ? "" : changes[0].text()},
                                   {"device", other.plan.needed().device},
                                   {"host", other.plan.needed().host},
                                   {"disk", other.plan.of(Memory::disk)},
                                   {"seconds", time_of(other.deck, other.plan, ranks.rates).total()}});
  }
  one["reserve"] = ranks.reserve;
  one["backend"] = ranks.backend;
  one["rates"] = ranks.rates.source;
  return one;
}

/// What optim.freeze or adapters save; "" if every tensor is trained.
std::string frozen_text(const io::Deck& deck, const PlannedRanks& ranks) {
  const plan::MemoryPlan& plan = ranks.plans.at(static_cast<std::size_t>(deck.zero.stage));
  if (plan.num_trainable == plan.num_parameters) return "";
  io::Deck unfrozen = deck;
  unfrozen.optim.freeze.clear();
  unfrozen.model.lora = {};
  unfrozen.model.base_dtype = "none";
  const auto without = plan::plans_of_all_stages(unfrozen, ranks.backend, ranks.count, data::vocab_of(deck));
  const std::int64_t total = without.at(static_cast<std::size_t>(deck.zero.stage)).total();
  const plan::SizeUnit unit = plan::unit_of(ranks.plans);
  return fmt::format("{} leaves {} parameters to train and saves {} {} in stage {}\n\n",
                     deck.model.lora.rank > 0 ? "model.lora" : "optim.freeze", plan.num_trainable,
                     plan::text_in(unit, static_cast<double>(total - plan.total())), unit.name, deck.zero.stage);
}

}  // namespace

std::string PlanReport::tables() const {
  if (all.size() > 1) return totals_of(deck, all);
  const PlannedRanks& ranks = all[0];
  return fmt::format("{}: {} parameters on {} rank{}; the deck asks for stage {}\n\n", escaped(deck.source),
                     ranks.plans.front().num_parameters, ranks.count, ranks.count == 1 ? "" : "s", deck.zero.stage) +
         frozen_text(deck, ranks) + plan::table_of(ranks.plans, ranks.room) +
         plan::table_of(plans_recomputed(deck, ranks), ranks.plans) + "\n" +
         table_of(times_of(deck, ranks.plans, ranks.rates), ranks.rates) + alternatives_of(deck, ranks);
}

std::string PlanReport::advice() const {
  std::string text;
  for (const PlannedRanks& ranks : all) text += advice_for(ranks, deck, dropped);
  return text;
}

nlohmann::ordered_json PlanReport::json() const {
  nlohmann::ordered_json json = {{"parameters", all[0].plans.front().num_parameters},
                                 {"trained", all[0].plans.front().num_trainable},
                                 {"precision", name_of(all[0].plans.front().precision)},
                                 {"backend", all[0].backend},
                                 {"stages", nlohmann::ordered_json::array()},
                                 {"recomputed", nlohmann::ordered_json::array()},
                                 {"fits", nlohmann::ordered_json::array()}};
  for (const PlannedRanks& ranks : all) {
    json["rates"] = ranks.rates.source;
    const auto add = [&](const char* list, const io::Deck& planned, const std::vector<plan::MemoryPlan>& of_stages) {
      for (auto& stage : stages_of(of_stages, times_of(planned, of_stages, ranks.rates))) {
        stage["recompute"] = planned.train.recompute.text();
        json[list].push_back(stage);
      }
    };
    add("stages", deck, ranks.plans);
    for (const auto& level : plans_recomputed(deck, ranks)) {
      io::Deck changed = deck;
      changed.train.recompute = level.recompute;
      add("recomputed", changed, level.plans);
    }
    json["fits"].push_back(fit_json(ranks, deck, dropped));
  }
  return json;
}

}  // namespace kozero::commands
