// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_base.cpp: pieces of the base of adapters, and the sum of their hashes over ranks.
#include <algorithm>

#include <kozero/core/random.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/adapter_base.hpp>
#include "io/posix/block_hashes.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::train {
namespace {

/// Calls body for pieces of the range, in order; for one piece without elements if the range is empty.
template <class Body>
void for_each_piece(const UnitRange& range, std::int64_t most, const Body& body) {
  std::vector<float> memory;
  std::int64_t first = 0;
  do {
    memory.resize(static_cast<std::size_t>(std::min(most, range.extent - first)));
    body(io::RangeValues<float>{range.unit, range.begin + first, {memory.data(), memory.size()}});
    first += std::max<std::int64_t>(std::ssize(memory), 1);
  } while (first < range.extent);
}

}  // namespace

void fill_without_master(Evaluator& evaluator, const PieceValues& values, std::int64_t most) {
  const ParameterTable& table = evaluator.parameters();
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).is_base || evaluator.is_in_master(unit)) continue;
    for_each_piece(evaluator.range_to_put(unit), most, [&](const io::RangeValues<float>& piece) {
      values(piece);
      evaluator.put(piece.unit, piece.begin, piece.values);
    });
  }
}

AdapterBase::AdapterBase(Evaluator& evaluator)
    : evaluator_(evaluator),
      table_(evaluator.parameters()),
      layout_(table_, evaluator.master().comm().size(), evaluator.master().comm().rank()),
      hashes_(table_.num_base_tensors()) {}

void AdapterBase::fill(const PieceValues& values, std::int64_t most) {
  for (const UnitRange& shard : layout_.shards()) {
    if (!table_.unit(shard.unit).is_base) continue;
    UnitRange range = evaluator_.range_to_put(shard.unit);
    if (range.extent == 0) range = shard;
    const std::int64_t end = std::max(shard.begin + shard.extent, range.begin + range.extent);
    range.begin = std::min(shard.begin, range.begin);
    range.extent = end - range.begin;
    for_each_piece(range, most, [&](const io::RangeValues<float>& piece) {
      values(piece);
      evaluator_.put(piece.unit, piece.begin, piece.values);
      add_hashes(piece);
    });
  }
}

void AdapterBase::add_hashes(const io::RangeValues<float>& piece) {
  const UnitRange& shard = layout_.shard(piece.unit);
  const std::int64_t begin = std::max(piece.begin, shard.begin);
  const std::int64_t end =
      std::min(piece.begin + static_cast<std::int64_t>(piece.values.extent(0)), shard.begin + shard.extent);
  if (begin >= end) return;
  const HostVector<const float> mine = slice(piece.values, begin - piece.begin, end - begin);
  for (const Parameter& row : table_.rows_of(piece.unit)) {
    const TensorPart part = row.part_in(begin, end - begin);
    if (part.extent == 0) continue;
    hashes_[static_cast<std::size_t>(row.tensor)] +=
        kernels::bit_hash(Host(), slice(mine, part.begin, part.extent), part.first);
  }
}

std::string AdapterBase::publish() {
  evaluator_.publish();
  const auto all = distributed::from_all_ranks(evaluator_.master().comm(), hashes_);
  std::vector<std::uint64_t> sums(hashes_.size());
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return io::xxh3_128({reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(std::uint64_t)});
}

std::string initialize_base(std::uint64_t seed, Evaluator& evaluator) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements, 4 MiB
  AdapterBase base(evaluator);
  base.fill(
      [&](const io::RangeValues<float>& piece) {
        fill_initial_unit(evaluator.parameters(), piece.unit, seed, piece.begin, piece.values);
      },
      kPiece);
  return base.publish();
}

}  // namespace kozero::train
