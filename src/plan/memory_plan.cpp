// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_plan.cpp: a rank's memory by the constructors that a run uses, and the first changes that make a deck fit.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <kozero/core/architecture.hpp>
#include <kozero/core/choices.hpp>
#include <kozero/core/device.hpp>
#include <kozero/distributed/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/quantized_base.hpp>
#include "io/deck/schema.hpp"

namespace kozero::plan {
namespace {

std::string row_of(const std::string& name, const std::vector<double>& bytes, const SizeUnit& unit) {
  std::string row = fmt::format("{:<28}", name);
  for (const double value : bytes) row += fmt::format("{:>14}", text_in(unit, value));
  return row + "\n";
}

template <class Value>
std::vector<double> each(const std::vector<MemoryPlan>& plans, const Value& value) {
  std::vector<double> values;
  for (const auto& plan : plans) values.push_back(static_cast<double>(value(plan)));
  return values;
}

/// Whether a GPU's rank also needs memory of the host.
bool has_host_memory(const std::vector<MemoryPlan>& plans) {
  return std::ranges::any_of(plans, [](const MemoryPlan& plan) { return plan.on_gpus && plan.needed().host > 0; });
}

std::vector<double> on_gpu(const std::vector<MemoryPlan>& plans) {
  return each(plans, [](const MemoryPlan& plan) { return plan.needed().device; });
}

/// Bytes of the base of adapters in one copy; 0 without adapters.
std::int64_t bytes_of_base(const train::Settings& settings, const ParameterTable& table) {
  if (!table.has_adapters()) return 0;
  if (settings.zero.base == BaseType::as_weights) {
    return (table.num_parameters() - table.num_trainable()) * parameter_bytes(settings.precision).stored;
  }
  std::int64_t bytes = 0;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).is_base) bytes += zero::bytes_of_words(table, unit, settings.zero.base);
  }
  return bytes;
}

MemoryPlan plan_in_stage(io::Deck deck, int stage, const std::string& backend, int num_ranks, std::int64_t data_vocab) {
  deck = in_stage(std::move(deck), stage);
  train::Settings settings = train::settings_of(deck, num_ranks, data_vocab, 0);
  const bool by_node = deck.zero.shard_group == "node" || deck.ranks_per_node > 0;
  if (by_node && settings.comm.ranks_per_node == 0) settings.comm.ranks_per_node = train::assumed_ranks_per_node(deck);
  return memory_plan(settings, backend, num_ranks);
}

bool has_activations(const io::Deck& deck) { return architecture(deck.model.arch).decoder; }

/// The deck's train.recompute, then the values that keep fewer activations, if the model has any.
std::vector<io::WordOrNumber> recomputes_from(const io::Deck& deck) {
  const io::WordOrNumber& of_deck = deck.train.recompute;
  std::vector<io::WordOrNumber> all = {of_deck};
  if (!has_activations(deck)) return all;
  const auto* const own =
      std::ranges::find(kRecomputes, of_deck.word(), [](const char* word) { return std::string(word); });
  const auto* const next =
      own == kRecomputes.end() ? std::prev(own) : std::next(own);  // N blocks: only full stores less
  all.insert(all.end(), next, kRecomputes.end());
  return all;
}

/// Doubles the micro-batch of `fit` while the plan has room, at most to a rank's share of the batch.
void enlarge_micro_batch(Fit& fit, std::int64_t most, const DeviceAndHost& room, const auto& plan) {
  io::Deck changed = fit.deck;
  fit.largest_micro_batch = changed.train.micro_batch;
  fit.at_largest = fit.plan;
  while (2 * changed.train.micro_batch <= most && changed.train.accumulate % 2 == 0) {
    changed.train.micro_batch *= 2;
    changed.train.accumulate /= 2;
    const MemoryPlan larger = plan(changed);
    if (!larger.needed().fit(room)) return;
    fit.largest_micro_batch = changed.train.micro_batch;
    fit.at_largest = larger;
  }
}

/// The first variant of the deck that fits in memory, offloading unchanged.
std::optional<Fit> first_fit_of(const io::Deck& deck, const std::string& backend, int num_ranks,
                                std::int64_t data_vocab, const DeviceAndHost& room) {
  const auto plan = [&](const io::Deck& changed) {
    return plan_in_stage(changed, static_cast<int>(changed.zero.stage), backend, num_ranks, data_vocab);
  };
  io::Deck changed = deck;
  const std::int64_t accumulated = deck.train.micro_batch * deck.train.accumulate;  // a rank's share of the batch
  for (; changed.train.micro_batch >= 1; changed.train.micro_batch /= 2) {
    if (accumulated % changed.train.micro_batch != 0) break;  // the batch stays as it is
    changed.train.accumulate = accumulated / changed.train.micro_batch;
    for (const io::WordOrNumber& recompute : recomputes_from(deck)) {
      changed.train.recompute = recompute;
      for (auto stage = static_cast<int>(deck.zero.stage); stage <= 3; ++stage) {
        const io::Deck staged = in_stage(changed, stage);
        Fit fit{.deck = staged, .changes = {}, .plan = plan(staged), .at_largest = {}};
        if (!fit.plan.needed().fit(room)) continue;
        enlarge_micro_batch(fit, train::batch_sizes(deck, num_ranks).global_batch / num_ranks, room, plan);
        return fit;
      }
    }
  }
  return std::nullopt;
}

/// The plan of `fit` with the smallest groups of whole nodes that fit, if they save over 10 % of the bytes sent across.
std::optional<MemoryPlan> smallest_groups(const Fit& fit, const std::string& backend, std::int64_t data_vocab,
                                          const DeviceAndHost& room) {
  io::Deck changed = fit.deck;
  const bool has_nodes = backend == "nccl" || changed.ranks_per_node > 0;
  if (!has_nodes || fit.plan.stage == 0 || fit.plan.ranks_per_group < fit.plan.num_ranks) return std::nullopt;
  const int node = train::assumed_ranks_per_node(changed);
  for (int ranks = node; ranks < fit.plan.num_ranks; ranks += node) {
    if (fit.plan.num_ranks % ranks != 0) continue;
    changed.zero.shard_group = std::int64_t{ranks};
    const MemoryPlan plan = plan_in_stage(changed, fit.plan.stage, backend, fit.plan.num_ranks, data_vocab);
    if (plan.needed().fit(room) && 10 * plan.sent.across < 9 * sent_beyond(fit.plan, ranks)) return plan;
  }
  return std::nullopt;
}

constexpr std::array<std::int64_t, 2> kBlockRows = {8192, 2048};  // of a vocabulary block: fewer make products slower
constexpr std::int64_t kLeastOffloadMib = 32;

/// Where a run offloads its state to.
std::string offload_target(const io::Deck& deck) { return train::runs_on_gpus(deck) ? "host" : "disk"; }

/// The words of train.recompute that the deck does not have; none for a model without activations.
std::vector<std::string> other_recomputes(const io::Deck& deck) {
  if (!has_activations(deck)) return {};
  std::vector<std::string> others = all_of(kRecomputes);
  std::erase(others, deck.train.recompute.word());
  return others;
}

/// Values of model.vocab_block below the vocabulary size; none if the deck sets model.vocab_block.
std::vector<std::int64_t> rows_of_blocks(const io::Deck& deck, std::int64_t data_vocab) {
  const model::Config config = train::model_config(deck, data_vocab);
  std::vector<std::int64_t> rows;
  if (!architecture(config.arch).decoder || config.vocab_block > 0) return rows;
  std::ranges::copy_if(kBlockRows, std::back_inserter(rows), [&](auto each) { return each < config.vocab; });
  return rows;
}

}  // namespace

bool DeviceAndHost::fit(const DeviceAndHost& room) const {
  return (room.device <= 0 || device <= room.device) && (room.host <= 0 || host <= room.host);
}

std::int64_t MemoryPlan::total() const {
  std::int64_t sum = 0;
  for (const auto value : bytes) sum += value;
  return sum - of(Memory::disk);
}

DeviceAndHost MemoryPlan::needed() const {
  if (!on_gpus) return {total(), total()};
  return {total() - of(Memory::staging), of(Memory::staging)};
}

MemoryPlan memory_plan(const train::Settings& settings, const std::string& backend, int num_ranks) {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  const auto mesh = distributed::make_planned_mesh(backend, num_ranks, settings.ranks_per_group, ledger, settings.comm);
  const auto engine = train::make_evaluator(settings, mesh.mesh(), ledger);
  MemoryPlan plan;
  plan.on_gpus = settings.on_gpus;
  plan.backend = backend;
  plan.stage = settings.zero.stage;
  plan.num_ranks = num_ranks;
  plan.precision = settings.precision;
  plan.micro_batch = settings.batch.micro_batch;
  plan.num_parameters = engine->parameters().num_parameters();
  plan.num_trainable = engine->parameters().num_trainable();
  plan.base_bytes = bytes_of_base(settings, engine->parameters());
  plan.num_states = optim::num_states(settings.optim.kind);
  for (std::size_t i = 0; i < plan.bytes.size(); ++i) plan.bytes[i] = ledger.bytes(static_cast<Memory>(i));
  plan.lines = ledger.lines();
  plan.flops_per_token = engine->flops_per_token();
  plan.ranks_per_group = settings.ranks_per_group;
  plan.sent = bytes_sent(settings, engine->parameters(), num_ranks);
  plan.arrays = arrays_sent(settings, engine->parameters());
  return plan;
}

PlannedEngine::PlannedEngine(train::Settings settings)
    : comm_(distributed::make_planned_communicator("self", 0, 1, ledger_)) {
  settings.staged = false;
  engine_ = train::make_engine(settings, *comm_, ledger_);
}

double model_state_bytes(const MemoryPlan& plan) {
  const auto trained = static_cast<double>(plan.num_trainable);
  const double all = plan.base_bytes > 0 ? trained : static_cast<double>(plan.num_parameters);
  const zero::PlacementRow row = zero::placement_row(plan.stage);
  const auto held = [&](double elements, distributed::Placement placement) {
    return placement == distributed::Placement::sharded ? elements / plan.ranks_per_group : elements;
  };
  const ParameterBytes bytes = parameter_bytes(plan.precision);
  return held(static_cast<double>(plan.base_bytes), row.parameters) +
         static_cast<double>(bytes.stored) * held(all, row.parameters) + 4.0 * held(trained, row.gradients) +
         4.0 * plan.num_states * held(trained, row.optimizer) +
         static_cast<double>(bytes.master) * held(all, row.optimizer);
}

std::int64_t sent_beyond(const MemoryPlan& plan, int ranks) {
  // A rank sends equally many bytes to each other rank.
  return plan.num_ranks == 1 ? 0 : plan.sent.all / (plan.num_ranks - 1) * (plan.num_ranks - ranks);
}

std::string text_of(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) text += (text.empty() ? "" : " ") + change.text();
  return text;
}

io::Deck in_stage(io::Deck deck, int stage) {
  deck.zero.stage = stage;
  if (stage >= 2) deck.zero.accumulation = "ordered";
  return deck;
}

std::vector<Change> changes_between(io::Deck from, io::Deck to) {
  const auto value = [](const io::DeckRow& row, io::Deck& deck) {
    const io::DeckValue held = row.value_in(deck);
    if (const auto* const word = std::get_if<std::string*>(&held)) return **word;
    if (const auto* const either = std::get_if<io::WordOrNumber*>(&held)) return (*either)->text();
    return io::toml_text(held);
  };
  // In the order in which first_fit tries them; other keys come first.
  constexpr std::array kTried = {
      "zero.stage",       "train.recompute",   "train.micro_batch",      "train.accumulate",        "zero.accumulation",
      "zero.shard_group", "model.vocab_block", "zero.offload_optimizer", "zero.offload_parameters", "zero.offload_mib"};
  std::vector<Change> changes;
  for (const io::DeckRow& row : io::deck_schema()) {
    const std::string changed = value(row, to);
    if (changed != value(row, from)) changes.push_back({row.key, changed});
  }
  const auto place = [&](const Change& change) {
    const auto found = std::ranges::find(kTried, change.key);
    return found == kTried.end() ? -1 : std::distance(kTried.begin(), found);
  };
  std::ranges::stable_sort(changes, {}, place);
  return changes;
}

std::optional<Fit> first_fit(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                             const DeviceAndHost& room) {
  const std::string elsewhere = offload_target(deck);
  io::Deck changed = deck;
  std::optional<Fit> fit;
  const auto attempt = [&] {
    fit = first_fit_of(changed, backend, num_ranks, data_vocab, room);
    if (fit || changed.zero.shard_group != "all") return;
    for (const std::int64_t rows : rows_of_blocks(changed, data_vocab)) {
      io::Deck blocks = changed;
      blocks.model.vocab_block = rows;
      if (!fit) fit = first_fit_of(blocks, backend, num_ranks, data_vocab, room);
    }
  };
  attempt();
  if (!fit && changed.zero.shard_group != "all") {
    changed.zero.shard_group = "all";
    attempt();
  }
  for (std::string* value : {&changed.zero.offload_optimizer, &changed.zero.offload_parameters}) {
    if (fit || *value != "none") continue;
    *value = elsewhere;
    attempt();
  }
  const bool on_disk = changed.zero.offload_optimizer == "disk" || changed.zero.offload_parameters == "disk";
  if (!fit && on_disk && changed.zero.offload_mib > kLeastOffloadMib) {
    changed.zero.offload_mib = kLeastOffloadMib;
    attempt();
  }
  if (!fit) return fit;
  fit->changes = changes_between(deck, fit->deck);
  fit->in_groups = smallest_groups(*fit, backend, data_vocab, room);
  return fit;
}

std::vector<MemoryPlan> plans_of_all_stages(const io::Deck& deck, const std::string& backend, int num_ranks,
                                            std::int64_t data_vocab) {
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage <= 3; ++stage) {
    plans.push_back(plan_in_stage(deck, stage, backend, num_ranks, data_vocab));
  }
  return plans;
}

std::string totals_of(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                      const DeviceAndHost& room, const SizeUnit& unit) {
  std::string table;
  for (const io::WordOrNumber& recompute : recomputes_from(deck)) {
    io::Deck changed = deck;
    changed.train.recompute = recompute;
    table += fmt::format("{:>5} {:<10} {:<12}", num_ranks, backend, recompute.text());
    for (const MemoryPlan& plan : plans_of_all_stages(changed, backend, num_ranks, data_vocab)) {
      const bool fits = (room.device > 0 || room.host > 0) && plan.needed().fit(room);
      table += fmt::format("{:>14}{}", text_in(unit, static_cast<double>(plan.needed().device)), fits ? "*" : " ");
    }
    table += "\n";
  }
  return table;
}

std::vector<Recomputed> plans_recomputed(const io::Deck& deck, const std::string& backend, int num_ranks,
                                         std::int64_t data_vocab) {
  std::vector<Recomputed> levels;
  for (const std::string& recompute : other_recomputes(deck)) {
    io::Deck changed = deck;
    changed.train.recompute = recompute;
    levels.push_back({recompute, plans_of_all_stages(changed, backend, num_ranks, data_vocab)});
  }
  return levels;
}

std::vector<Alternative> alternatives(const io::Deck& deck, const std::string& backend, int num_ranks,
                                      std::int64_t data_vocab) {
  std::vector<Alternative> all;
  const auto add = [&](const auto& change) {
    Alternative one{deck, {}};
    change(one.deck);
    one.plan = plan_in_stage(one.deck, static_cast<int>(deck.zero.stage), backend, num_ranks, data_vocab);
    all.push_back(std::move(one));
  };
  add([](io::Deck&) {});
  for (const std::string& recompute : other_recomputes(deck)) {
    add([&](io::Deck& changed) { changed.train.recompute = recompute; });
  }
  for (const std::int64_t rows : rows_of_blocks(deck, data_vocab)) {
    add([&](io::Deck& changed) { changed.model.vocab_block = rows; });
  }
  const std::string elsewhere = offload_target(deck);
  if (deck.zero.offload_optimizer == "none") {
    add([&](io::Deck& changed) { changed.zero.offload_optimizer = elsewhere; });
  }
  if (deck.zero.offload_parameters == "none" && deck.zero.stage == 3) {
    add([&](io::Deck& changed) { changed.zero.offload_parameters = elsewhere; });
  }
  const int node = train::assumed_ranks_per_node(deck);
  if (deck.zero.shard_group == "all" && deck.zero.stage > 0 && num_ranks > node && num_ranks % node == 0) {
    add([&](io::Deck& changed) { changed.zero.shard_group = std::int64_t{node}; });
  }
  return all;
}

SizeUnit unit_of(const std::vector<MemoryPlan>& plans) {
  constexpr double kGiB = 1024.0 * kMiB;
  double most = 0.0;
  for (const MemoryPlan& plan : plans) most = std::max(most, static_cast<double>(plan.total()));
  const double large = plans.front().on_gpus ? kGiB : 16.0 * kGiB;
  if (most >= large) return {"GiB", kGiB, 2};
  return most >= kMiB ? SizeUnit{"MiB", kMiB, 1} : SizeUnit{"KiB", 1024.0, 1};
}

std::string text_in(const SizeUnit& unit, double bytes) {
  const double value = bytes / unit.bytes;
  std::string text = fmt::format("{:.{}f}", value, unit.digits);
  for (int digits = unit.digits + 1; value > 0.0 && text.find_first_of("123456789") == std::string::npos; ++digits) {
    text = fmt::format("{:.{}f}", value, digits);
  }
  return text;
}

std::string table_of(const std::vector<Recomputed>& levels, const std::vector<MemoryPlan>& plans) {
  const SizeUnit unit = unit_of(plans);
  std::string table;
  for (const Recomputed& level : levels) {
    for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
      bool differs = false;
      for (std::size_t stage = 0; stage < plans.size(); ++stage) {
        differs = differs || level.plans[stage].bytes[i] != plans[stage].bytes[i];
      }
      if (!differs) continue;
      table += row_of(fmt::format("{}, {}", kMemoryNames[i], level.recompute),
                      each(level.plans, [&](const MemoryPlan& plan) { return plan.bytes[i]; }), unit);
    }
    const auto totals = each(level.plans, [](const MemoryPlan& plan) { return plan.total(); });
    table += row_of("total, " + level.recompute, totals, unit);
    if (has_host_memory(level.plans)) table += row_of("of it on the GPU", on_gpu(level.plans), unit);
  }
  return table.empty() ? "" : "\nwith train.recompute\n" + table;
}

std::string table_of(const std::vector<MemoryPlan>& plans, const DeviceAndHost& room) {
  const SizeUnit unit = unit_of(plans);
  std::string table = fmt::format("{:<28}", fmt::format("{} on the fullest rank", unit.name));
  for (const auto& plan : plans) table += fmt::format("{:>14}", fmt::format("stage {}", plan.stage));
  table += "\n";
  const auto disk = each(plans, [](const MemoryPlan& plan) { return plan.of(Memory::disk); });
  for (std::size_t i = 0; i < kMemoryNames.size(); ++i) {
    if (static_cast<Memory>(i) == Memory::disk) continue;
    const auto values = each(plans, [&](const MemoryPlan& plan) { return plan.bytes[i]; });
    double sum = 0.0;
    for (const double value : values) sum += value;
    if (sum > 0.0) table += row_of(std::string(kMemoryNames[i]), values, unit);
  }
  table += row_of("total", each(plans, [](const MemoryPlan& plan) { return plan.total(); }), unit);
  if (has_host_memory(plans)) table += row_of("of it on the GPU", on_gpu(plans), unit);
  if (std::ranges::max(disk) > 0.0) table += row_of("on disk", disk, unit);
  if (plans.front().num_ranks > 1) {
    table += row_of("sent per step, mean", each(plans, [](const MemoryPlan& plan) { return plan.sent.all; }), unit);
    const auto across = each(plans, [](const MemoryPlan& plan) { return plan.sent.across; });
    if (std::ranges::max(across) > 0.0) table += row_of("of it to other groups", across, unit);
  }
  table += row_of(fmt::format("states by formula, {}", name_of(plans.front().precision)),
                  each(plans, [](const MemoryPlan& plan) { return model_state_bytes(plan); }), unit);
  if (room.device <= 0) return table;
  const SizeUnit at_least_mib = unit.bytes < kMiB ? SizeUnit{"MiB", kMiB, 1} : unit;
  const std::string each_has = fmt::format("{} {}{} per rank", text_in(at_least_mib, static_cast<double>(room.device)),
                                           at_least_mib.name, plans.front().on_gpus ? " of GPU memory" : "");
  for (const auto& plan : plans) {
    if (plan.needed().fit(room)) return table + fmt::format("lowest stage within {}: {}\n", each_has, plan.stage);
  }
  return table + fmt::format("no stage fits {}\n", each_has);
}

}  // namespace kozero::plan
