// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapter_base.cpp: fills the base of adapters in parts of bounded size, and adds their hashes over the ranks.
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/adapter_base.hpp>
#include "io/posix/block_hashes.hpp"
#include "kernels/launch/reduce.hpp"

namespace kozero::train {
namespace {

/// Calls body for the pieces of this rank's range of a unit, in order.
template <class Body>
void for_each_piece(const UnitRange& range, Pieces pieces, distributed::Communicator& comm, const Body& body) {
  std::int64_t count = std::max<std::int64_t>((range.extent + kPieceExtent - 1) / kPieceExtent, 1);
  if (pieces == Pieces::equal) count = std::ranges::max(distributed::from_all_ranks(comm, count));
  std::vector<float> memory;
  for (std::int64_t first = 0; count > 0; --count, first += kPieceExtent) {
    memory.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(range.extent - first, 0, kPieceExtent)));
    const std::int64_t begin = range.begin + std::min(first, range.extent);
    body(io::RangeValues<float>{range.unit, begin, HostVector<float>(memory.data(), memory.size())});
  }
}

}  // namespace

void fill_without_master(Evaluator& evaluator, const PieceValues& values, Pieces pieces) {
  const ParameterTable& table = evaluator.parameters();
  for (int unit = 0; unit < table.num_units(); ++unit) {
    if (table.unit(unit).is_base || evaluator.is_in_master(unit)) continue;
    for_each_piece(evaluator.range_to_put(unit), pieces, evaluator.comm(), [&](const io::RangeValues<float>& piece) {
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

void AdapterBase::fill(const PieceValues& values, Pieces pieces) {
  for (const UnitRange& shard : layout_.shards()) {
    if (!table_.unit(shard.unit).is_base) continue;
    UnitRange range = evaluator_.range_to_put(shard.unit);
    if (range.extent == 0) range = shard;
    const std::int64_t end = std::max(shard.begin + shard.extent, range.begin + range.extent);
    range.begin = std::min(shard.begin, range.begin);
    range.extent = end - range.begin;
    for_each_piece(range, pieces, evaluator_.comm(), [&](const io::RangeValues<float>& piece) {
      values(piece);
      examine(piece);
      evaluator_.put(piece.unit, piece.begin, piece.values);
    });
  }
}

void AdapterBase::examine(const io::RangeValues<float>& piece) {
  const UnitRange& shard = layout_.shard(piece.unit);
  const std::int64_t begin = std::max(piece.begin, shard.begin);
  const std::int64_t end =
      std::min(piece.begin + static_cast<std::int64_t>(piece.values.extent(0)), shard.begin + shard.extent);
  if (begin >= end) return;
  const HostVector<const float> mine = slice(piece.values, begin - piece.begin, end - begin);
  for (const Parameter& row : table_.rows_of(piece.unit)) {
    const TensorPart part = row.part_in(begin, end - begin);
    if (part.extent == 0) continue;
    const HostVector<const float> of_row = slice(mine, part.begin, part.extent);
    hashes_[static_cast<std::size_t>(row.tensor)] += kernels::bit_hash(Host(), of_row, part.first);
    const bool is_finite =
        std::all_of(of_row.data(), of_row.data() + of_row.extent(0), [](float value) { return std::isfinite(value); });
    if (!is_finite && not_finite_.empty()) not_finite_ = row.name;
  }
}

std::string AdapterBase::publish(const std::string& origin) {
  for (const std::string& tensor : distributed::gather_text(evaluator_.comm(), not_finite_)) {
    if (tensor.empty()) continue;
    throw Error(Failure::input, origin + ": tensor " + tensor + " has a value that is not finite",
                Error::Seen::by_all_ranks);
  }
  evaluator_.publish();
  const auto sums = evaluator_.master().comm().sum_control(hashes_);
  return io::xxh3_128({reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(std::uint64_t)});
}

std::string initialize_base(std::uint64_t seed, Evaluator& evaluator) {
  AdapterBase base(evaluator);
  base.fill(
      [&](const io::RangeValues<float>& piece) {
        fill_initial_unit(evaluator.parameters(), piece.unit, seed, piece.begin, piece.values);
      },
      Pieces::own);
  return base.publish("the initial weights");
}

}  // namespace kozero::train
