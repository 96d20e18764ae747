// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// quantized_base.cpp: the blocks of units, their words, and the buffers of decoded weights.
#include <algorithm>

#include <kozero/core/device.hpp>
#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/zero/quantized_base.hpp>

namespace kozero::zero {

using distributed::Placement;
using distributed::Storage;
using kernels::BlockCode;
using kernels::kBlockWeights;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::int64_t end_of_words(const BlockRun& run) { return run.first_word + run.count * words_of_block(run.code); }

std::vector<std::vector<BlockRun>> runs_of_units(const ParameterTable& table, BaseType type) {
  std::vector<std::vector<BlockRun>> runs;
  for (int unit = 0; unit < table.num_units(); ++unit) runs.push_back(block_runs(table, unit, type));
  return runs;
}

/// The block that holds a word.
std::int64_t block_of(const std::vector<BlockRun>& runs, std::int64_t word) {
  for (const BlockRun& run : runs) {
    if (word < end_of_words(run)) return run.first + (word - run.first_word) / words_of_block(run.code);
  }
  return runs.empty() ? 0 : runs.back().first + runs.back().count;  // the pad behind the last block
}

/// The first word of a block.
std::int64_t word_of(const std::vector<BlockRun>& runs, std::int64_t block) {
  for (const BlockRun& run : runs) {
    if (block < run.first + run.count) return run.first_word + (block - run.first) * words_of_block(run.code);
  }
  return runs.empty() ? 0 : end_of_words(runs.back());
}

}  // namespace

std::vector<BlockRun> block_runs(const ParameterTable& table, int unit, BaseType type) {
  const BlockCode code = type == BaseType::int8 ? BlockCode::int8 : BlockCode::nf4;
  const std::int64_t blocks = table.unit(unit).extent / kBlockWeights;
  std::vector<BlockRun> runs;
  const auto add = [&](std::int64_t end, BlockCode of_blocks) {
    const std::int64_t first = runs.empty() ? 0 : runs.back().first + runs.back().count;
    if (end <= first) return;
    if (!runs.empty() && runs.back().code == of_blocks) {
      runs.back().count += end - first;
    } else {
      runs.push_back({first, end - first, of_blocks, runs.empty() ? 0 : end_of_words(runs.back())});
    }
  };
  for (const Parameter& row : table.rows_of(unit)) {
    const bool is_matrix = row.shape.size() > 1;
    add(row.offset / kBlockWeights, BlockCode::raw);
    add((row.offset + row.extent() + row.pad + kBlockWeights - 1) / kBlockWeights, is_matrix ? code : BlockCode::raw);
  }
  add(blocks, BlockCode::raw);
  return runs;
}

ParameterTable table_of_words(const ParameterTable& table, BaseType type) {
  ParameterTable words;
  const int lowest = table.first_trainable_unit();
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const Unit& of_weights = table.unit(unit);
    words.add_unit(of_weights.name, of_weights.slot, of_weights.vocabulary);
    if (!of_weights.is_base) continue;
    Parameter all;
    all.name = of_weights.name;
    all.shape = {end_of_words(block_runs(table, unit, type).back())};
    all.trainable = unit >= lowest;  // backward reads the unit (UnitOrder)
    words.add(std::move(all));
  }
  return words;
}

std::int64_t bytes_of_words(const ParameterTable& table, int unit, BaseType type) {
  const auto runs = block_runs(table, unit, type);
  return runs.empty() ? 0 : end_of_words(runs.back()) * static_cast<std::int64_t>(sizeof(float));
}

template <class Scalar>
QuantizedBase<Scalar>::QuantizedBase(const ParameterTable& table, BaseType type, const distributed::Mesh& mesh,
                                     Placement placement, MemoryLedger& ledger, GatherOrder order, MemorySource* source)
    : table_(table.base()),
      runs_(runs_of_units(table_, type)),
      table_of_words_(table_of_words(table, type)),
      words_(table_of_words_, mesh, placement, Storage{Memory::parameters, "quantized base", source}, ledger),
      slots_(table_, 0, order.held) {
  if (placement == Placement::sharded) gathered_.emplace(table_of_words_, words_, order, ledger);
  for (const auto& [name, extent] : slots_.buffers()) {
    buffers_.push_back({ledger.take<Scalar>(Memory::gathered, "decoded base, " + name, extent)});
  }
}

template <class Scalar>
Vector<const Scalar> QuantizedBase<Scalar>::acquire(int unit) {
  Buffer& buffer = buffers_[slots_.of(unit)];
  require(!buffer.held, "unit " + table_.unit(unit).name + " needs the buffer that " +
                            table_.unit(std::max(buffer.occupant, 0)).name + " holds");
  buffer.held = true;
  const auto weights = slice(buffer.memory, 0, table_.unit(unit).extent);
  if (buffer.occupant == unit) return weights;
  const Vector<const float> all = gathered_ ? gathered_->acquire(unit) : Vector<const float>(words_.full(unit));
  const Vector<const std::uint32_t> words = words_of(all);
  for (const BlockRun& run : runs_[at(unit)]) {
    kernels::decode_blocks(Device(), slice(weights, run.first * kBlockWeights, run.count * kBlockWeights),
                           slice(words, run.first_word, run.count * words_of_block(run.code)), run.code);
  }
  if (gathered_) gathered_->release(unit);
  buffer.occupant = unit;
  return weights;
}

template <class Scalar>
void QuantizedBase<Scalar>::release(int unit) {
  buffers_[slots_.of(unit)].held = false;
}

template <class Scalar>
UnitRange QuantizedBase<Scalar>::range_to_put(int unit) const {
  const UnitRange& shard = words_.layout().shard(unit);
  if (shard.extent == 0) return {unit, 0, 0, 0};
  const std::int64_t first = block_of(runs_[at(unit)], shard.begin);
  const std::int64_t blocks = table_.unit(unit).extent / kBlockWeights;
  const std::int64_t end = std::min(block_of(runs_[at(unit)], shard.begin + shard.extent - 1) + 1, blocks);
  return {unit, first * kBlockWeights, std::max<std::int64_t>(end - first, 0) * kBlockWeights, 0};
}

template <class Scalar>
void QuantizedBase<Scalar>::put(int unit, std::int64_t begin, const HostVector<const float>& weights) const {
  const auto& runs = runs_[at(unit)];
  const UnitRange& shard = words_.layout().shard(unit);
  const std::int64_t first_block = begin / kBlockWeights;
  const std::int64_t blocks = static_cast<std::int64_t>(weights.extent(0)) / kBlockWeights;
  const std::int64_t first_word = word_of(runs, first_block);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(word_of(runs, first_block + blocks) - first_word));
  for (const BlockRun& run : runs) {
    const std::int64_t from = std::max(run.first, first_block);
    const std::int64_t to = std::min(run.first + run.count, first_block + blocks);
    std::uint32_t* const out = words.data() + (run.first_word - run.first * words_of_block(run.code)) - first_word;
    const float* const in = weights.data() - begin;
    Kokkos::parallel_for("kozero::zero::encode", Kokkos::RangePolicy<Host>(Host(), from, std::max(from, to)),
                         [=, code = run.code](const std::int64_t block) {
                           kernels::encode_block(code, in + block * kBlockWeights, out + block * words_of_block(code));
                         });
  }
  Host().fence("kozero::zero::encode");
  const std::int64_t from = std::max(first_word, shard.begin);
  const std::int64_t to = std::min(first_word + std::ssize(words), shard.begin + shard.extent);
  if (from >= to) return;
  const auto mine = slice(words_of(words_.shard(unit)), from - shard.begin, to - from);
  Kokkos::deep_copy(mine, HostVector<const std::uint32_t>(words.data() + (from - first_word), mine.extent(0)));
  release_pages(mine);
}

template <class Scalar>
void QuantizedBase<Scalar>::publish() {
  for (Buffer& buffer : buffers_) buffer.occupant = -1;
  if (gathered_) return gathered_->drop();
  std::vector<int> units;
  for (int unit = 0; unit < table_.num_units(); ++unit) {
    if (table_.unit(unit).is_base) units.push_back(unit);
  }
  redistribute_units(words_.viewed_as(Placement::sharded), words_, units);
}

#define KOZERO_INSTANTIATE(T) template class QuantizedBase<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
