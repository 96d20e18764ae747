// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_case.hpp: a small model's table and its shards on n ranks, with a different value for each element.
#pragma once
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include "io/checkpoint/weights_file.hpp"

namespace kozero::io {

/// Odd shapes, joined tensors, a tensor larger than its neighbors, a tensor of a single element.
inline ParameterTable small_table() {
  ParameterTable table;
  table.add_unit("embedding", 0);
  table.add({.name = "wte", .shape = {17, 13}});
  table.add({.name = "wpe", .shape = {7, 13}});
  table.add_unit("h.0", 1);
  table.add({.name = "h.0.q", .shape = {3, 5, 7}});
  table.add_joined({.name = "h.0.k", .shape = {1, 35}});
  table.add({.name = "h.0.bias", .shape = {131}});
  table.add_unit("head", 0);
  table.add({.name = "ln_f.weight", .shape = {1}});
  return table;
}

inline float value_of(std::int64_t unit, std::int64_t position) {
  return static_cast<float>(1000 * unit + position) + 0.25F;
}

/// One rank's shards of every unit, with their memory.
struct RankSlices {
  std::vector<std::vector<float>> memory;
  std::vector<RangeValues<float>> shards;

  RankSlices(const ParameterTable& table, int rank, int num_ranks) {
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const Partition partition(table.unit(unit).extent, num_ranks);
      memory.emplace_back(static_cast<std::size_t>(partition.size(rank)), -1.0F);
      shards.push_back({unit, partition.begin(rank), HostVector<float>(memory.back().data(), memory.back().size())});
    }
  }
  void set_values() {
    for (auto& shard : shards) {
      for (std::size_t i = 0; i < shard.values.extent(0); ++i) {
        shard.values(i) = value_of(shard.unit, shard.begin + static_cast<std::int64_t>(i));
      }
    }
  }
  [[nodiscard]] std::vector<RangeValues<const float>> readable() const {
    std::vector<RangeValues<const float>> all;
    for (const auto& shard : shards) all.push_back({shard.unit, shard.begin, shard.values});
    return all;
  }
};

/// Whether the element at `position` of the unit belongs to a tensor, not to a pad.
inline bool is_in_tensor(const ParameterTable& table, int unit, std::int64_t position) {
  for (const auto& row : table.rows()) {
    if (row.unit == unit && row.offset <= position && position < row.offset + row.extent()) return true;
  }
  return false;
}

/// The number of elements that differ from those that set_values() wrote and read_weights promises.
inline int wrong_elements(const ParameterTable& table, const RankSlices& read) {
  int wrong = 0;
  for (const auto& shard : read.shards) {
    for (std::size_t i = 0; i < shard.values.extent(0); ++i) {
      const std::int64_t position = shard.begin + static_cast<std::int64_t>(i);
      const float wanted = is_in_tensor(table, shard.unit, position) ? value_of(shard.unit, position) : 0.0F;
      wrong += shard.values(i) == wanted ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace kozero::io
