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
    std::int64_t first = 0;
    do {
      memory.resize(static_cast<std::size_t>(std::min(most, shard.extent - first)));
      const io::RangeValues<float> piece{shard.unit, shard.begin + first, {memory.data(), memory.size()}};
      values(piece);
      put(piece);
      first += std::max<std::int64_t>(std::ssize(memory), 1);
    } while (first < shard.extent);
  }
}

void AdapterBase::put(const io::RangeValues<float>& piece) {
  const HostVector<const float> values = piece.values;
  evaluator_.put(piece.unit, piece.begin, values);
  for (const Parameter& row : table_.rows_of(piece.unit)) {
    const TensorPart part = row.part_in(piece.begin, static_cast<std::int64_t>(values.extent(0)));
    if (part.extent == 0) continue;
    hashes_[static_cast<std::size_t>(row.tensor)] +=
        kernels::bit_hash(Host(), slice(values, part.begin, part.extent), part.first);
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
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;  // elements, 16 MiB
  AdapterBase base(evaluator);
  base.fill(
      [&](const io::RangeValues<float>& piece) {
        fill_initial_unit(evaluator.parameters(), piece.unit, seed, piece.begin, piece.values);
      },
      kPiece);
  return base.publish();
}

}  // namespace kozero::train
