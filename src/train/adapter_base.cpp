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

AdapterBase::AdapterBase(Evaluator& evaluator)
    : evaluator_(evaluator),
      table_(evaluator.parameters()),
      layout_(table_, evaluator.master().comm().size(), evaluator.master().comm().rank()),
      hashes_(table_.tensors().size()) {}

void AdapterBase::fill(const Values& values, std::int64_t most) {
  std::vector<float> memory;
  for (const UnitRange& shard : layout_.shards()) {
    if (!table_.unit(shard.unit).is_base) continue;
    const UnitRange wanted = evaluator_.range_to_put(shard.unit);
    const bool has_more = wanted.extent > 0;
    std::int64_t begin = has_more ? std::min(shard.begin, wanted.begin) : shard.begin;
    const std::int64_t end = std::max(shard.begin + shard.extent, has_more ? wanted.begin + wanted.extent : 0);
    do {
      memory.resize(static_cast<std::size_t>(std::min(most, end - begin)));
      const io::RangeValues<float> piece{shard.unit, begin, {memory.data(), memory.size()}};
      values(piece);
      evaluator_.put(piece.unit, piece.begin, piece.values);
      add_hashes(piece);
      begin += std::max<std::int64_t>(std::ssize(memory), 1);
    } while (begin < end);
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
