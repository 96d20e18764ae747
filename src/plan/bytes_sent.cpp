// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bytes_sent.cpp: the gathers and reductions of a step, and the bytes that a rank sends for them.
#include <map>
#include <utility>
#include <vector>

#include <kozero/plan/memory_plan.hpp>
#include <kozero/zero/gathered_units.hpp>
#include <kozero/zero/quantized_base.hpp>

namespace kozero::plan {
namespace {

struct Gathers {
  std::int64_t bytes = 0;
  std::int64_t calls = 0;
};

/// How often a step in stage 3 gathers each unit.
std::vector<std::int64_t> gathers_per_unit(const train::Settings& settings, const ParameterTable& table) {
  const std::int64_t micro_steps = settings.batch.micro_steps;
  const int held = train::units_held(settings);
  const SlotBuffers buffers(table, settings.zero.prefetch_units, held);
  std::vector<int> occupants(buffers.buffers().size(), -1);
  std::vector<std::int64_t> gathers(static_cast<std::size_t>(table.num_units()));
  const zero::UnitOrder order(table, held);
  for (std::int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
    for (const int unit : order.all()) {
      if (std::exchange(occupants[buffers.of(unit)], unit) != unit) ++gathers[static_cast<std::size_t>(unit)];
    }
  }
  return gathers;
}

/// The gathers of a step in stage 3 of an array with `element_bytes` bytes per element of the table.
Gathers gathers_of(const train::Settings& settings, const ParameterTable& table, std::int64_t element_bytes) {
  const auto per_unit = gathers_per_unit(settings, table);
  Gathers gathers;
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const std::int64_t times = per_unit[static_cast<std::size_t>(unit)];
    gathers.bytes += times * table.unit(unit).extent * element_bytes;
    gathers.calls += times;
  }
  return gathers;
}

Gathers gathers_in_stage_3(const train::Settings& settings, const ParameterTable& table) {
  const std::int64_t stored = parameter_bytes(settings.precision).stored;
  const bool is_quantized = table.has_adapters() && settings.zero.base != BaseType::as_weights;
  if (!is_quantized) return gathers_of(settings, table, stored);
  const Gathers words = gathers_of(settings, zero::table_of_words(table, settings.zero.base), 4);
  const Gathers adapters = gathers_of(settings, table.without_base(), stored);
  return {words.bytes + adapters.bytes, words.calls + adapters.calls};
}

}  // namespace

std::vector<SentArrays> arrays_sent(const train::Settings& settings, const ParameterTable& table) {
  if (table.has_adapters() && settings.zero.base != BaseType::as_weights) return {};
  const auto stored = static_cast<std::int64_t>(parameter_bytes(settings.precision).stored);
  const bool is_local = settings.zero.accumulation == zero::Accumulation::local;
  const std::int64_t times = is_local ? 1 : settings.batch.micro_steps;
  const auto gathers = settings.zero.stage == 3 ? gathers_per_unit(settings, table) : std::vector<std::int64_t>();
  std::map<std::int64_t, SentArrays> by_bytes;
  const auto add = [&](std::int64_t bytes, std::int64_t reductions, std::int64_t gathered) {
    SentArrays& arrays = by_bytes[bytes];
    arrays = {bytes, arrays.reductions + reductions, arrays.gathers + gathered};
  };
  for (int number = 0; number < table.num_units(); ++number) {
    const Unit& unit = table.unit(number);
    const bool is_both = unit.vocabulary == VocabularyUse::both;
    if (unit.trainable) add(unit.extent * 4, times * (is_both ? 2 : 1), 0);
    if (settings.zero.stage == 3) {
      add(unit.extent * stored, 0, gathers[static_cast<std::size_t>(number)]);
    } else if (unit.trainable) {
      add(unit.extent * (settings.zero.stage == 0 ? 4 : stored), 0, 1);
    }
  }
  std::vector<SentArrays> all;
  for (const auto& [bytes, arrays] : by_bytes) all.push_back(arrays);
  return all;
}

BytesSent bytes_sent(const train::Settings& settings, const ParameterTable& table, int num_ranks) {
  const std::int64_t micro_steps = settings.batch.micro_steps;
  const auto stored = static_cast<std::int64_t>(parameter_bytes(settings.precision).stored);
  const bool is_local = settings.zero.accumulation == zero::Accumulation::local;
  std::int64_t updated = 0;  // elements
  std::int64_t updates = 0;  // gathers of weights, or of gradients in stage 0
  std::int64_t addends = 0;
  std::int64_t reductions = 0;
  for (const Unit& unit : table.units()) {
    if (!unit.trainable) continue;
    updated += unit.extent;
    ++updates;
    const int sums = unit.vocabulary == VocabularyUse::both ? 2 : 1;
    addends += sums * unit.extent;
    reductions += sums;
  }
  const std::int64_t times = is_local ? 1 : micro_steps;
  const std::int64_t reduced = times * addends * 4;
  const Gathers gathers = settings.zero.stage == 3
                              ? gathers_in_stage_3(settings, table)
                              : Gathers{updated * (settings.zero.stage == 0 ? 4 : stored), updates};
  const std::int64_t group = settings.ranks_per_group;
  const std::int64_t groups = num_ranks / group;
  const std::int64_t to_replicas = (groups - 1) * updated * 4 / num_ranks;
  const std::int64_t reduced_across = reduced * (groups - 1) / groups;
  const std::int64_t gathered = gathers.bytes / group * (group - 1);
  return {.all = reduced / num_ranks * (num_ranks - 1) + gathered + to_replicas,
          .across = reduced_across + to_replicas,
          .gathered = gathered,
          .calls = times * reductions + gathers.calls,
          .gathers = gathers.calls};
}

}  // namespace kozero::plan
