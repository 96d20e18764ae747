// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gathered_units.cpp: the order in which a pass reads units, and gathers started ahead of use.
#include <algorithm>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/zero/gathered_units.hpp>

namespace kozero::zero {

using distributed::Placement;

UnitOrder::UnitOrder(const ParameterTable& table, int held) {
  std::vector<int> blocks;
  std::vector<int> vocabulary;  // blocks of the vocabulary that the head reads
  const auto add = [&](int unit) {
    if (table.unit(unit).extent > 0) order_.push_back(unit);
    if (const int adapters = table.adapters_of(unit); adapters >= 0) order_.push_back(adapters);
  };
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const Unit& each = table.unit(unit);
    if (each.beside >= 0) continue;
    if (each.vocabulary != VocabularyUse::head) add(unit);
    if (each.vocabulary == VocabularyUse::head || each.vocabulary == VocabularyUse::both) vocabulary.push_back(unit);
    if (each.slot == kBlockSlot) blocks.push_back(unit);
  }
  order_.insert(order_.end(), vocabulary.rbegin(), vocabulary.rend());
  order_.insert(order_.end(), vocabulary.begin(), vocabulary.end());
  auto first = static_cast<int>(blocks.size());
  if (first == 0) return;
  const auto number = [&](int block) { return blocks[static_cast<std::size_t>(block)]; };
  const int lowest = table.first_trainable_unit();
  const int last = first - 1;
  first = last / held * held;  // first block of the last group
  for (int block = last; block >= first && number(block) >= lowest; --block) add(number(block));
  for (; first > 0 && number(first - 1) >= lowest; first -= held) {
    for (int block = first - held; block < first; ++block) add(number(block));
  }
}

void UnitOrder::reach(int unit) {
  const auto begin = order_.begin();
  const auto next = begin + static_cast<std::ptrdiff_t>(std::min(position_ + 1, order_.size()));
  auto found = std::find(next, order_.end(), unit);
  if (found == order_.end()) found = std::find(begin, order_.end(), unit);
  position_ = static_cast<std::size_t>(found - begin);
}

int UnitOrder::ahead(int steps) const {
  const std::size_t position = position_ + static_cast<std::size_t>(steps);
  return position < order_.size() ? order_[position] : -1;
}

bool UnitOrder::comes_before(int unit, int steps) const {
  for (int step = 1; step < steps; ++step) {
    if (ahead(step) == unit) return true;
  }
  return false;
}

template <class Scalar>
GatheredUnits<Scalar>::GatheredUnits(const ParameterTable& table, const distributed::DistributedArray<Scalar>& shards,
                                     GatherOrder order, MemoryLedger& ledger)
    : table_(table),
      shards_(shards),
      whole_(table, shards.mesh(), Placement::replicated,
             {Memory::gathered, "gathered weights", shards.comm().shares_gathered() ? &shards.comm() : nullptr,
              order.ahead, order.held},
             ledger),
      ahead_(order.ahead + order.held - 1),
      has_groups_(order.held > 1),
      order_(table, order.held),
      buffers_(whole_.num_buffers()) {}

template <class Scalar>
Vector<const Scalar> GatheredUnits<Scalar>::acquire(int unit) {
  // A unit acquired while others are held is the next block of a group, a block of the head's vocabulary, or the
  // head's tied embedding.
  if (num_held_ == 0 && unit == 0) {
    begin_pass();
  } else if (num_held_ == 0 || order_.ahead(1) == unit) {
    order_.reach(unit);
  }
  if (buffer(unit).occupant != unit) start(unit);
  const bool arrives = buffer(unit).gather.is_under_way();
  buffer(unit).gather.wait();
  if (arrives) release_pages(shards_.shard(unit));  // shm copies the shard in wait()
  buffer(unit).held = true;
  ++num_held_;
  start_ahead();
  return whole_.full(unit);
}

template <class Scalar>
void GatheredUnits<Scalar>::begin_pass() {
  order_.begin();
  // An earlier pass may have started gathers that it did not use: they must not stay under way.
  for (auto& buffer : buffers_) buffer.gather.wait();
}

template <class Scalar>
void GatheredUnits<Scalar>::start_ahead() {
  for (int steps = 1; steps <= ahead_; ++steps) {
    const int next = order_.ahead(steps);
    if (next < 0 || buffer(next).occupant == next || buffer(next).held) continue;
    if (!order_.comes_before(buffer(next).occupant, steps)) start(next);
  }
}

template <class Scalar>
void GatheredUnits<Scalar>::release(int unit) {
  buffer(unit).held = false;
  --num_held_;
  if (has_groups_) start_ahead();  // a buffer is free for a unit of the next group
}

template <class Scalar>
void GatheredUnits<Scalar>::start(int unit) {
  Buffer& mine = buffer(unit);
  require(!mine.held, "unit " + table_.unit(unit).name + " needs the slot that " +
                          table_.unit(std::max(mine.occupant, 0)).name + " holds");
  mine.gather.wait();
  mine.occupant = unit;
  for (int steps = 1; steps <= ahead_ + 1; ++steps) expect(order_.ahead(steps));
  mine.gather = redistribute(shards_, whole_, unit);  // peers that have read this gather have read all before
  release_pages(shards_.shard(unit));                 // mpi has copied the shard
}

template <class Scalar>
void GatheredUnits<Scalar>::expect(int unit) const {
  if (unit < 0 || buffers_[whole_.buffer(unit)].occupant == unit) return;
  read_ahead(range_of(shards_.shard(unit)));
}

template <class Scalar>
void GatheredUnits<Scalar>::wait_until_reusable() {
  for (auto& buffer : buffers_) buffer.gather.wait_until_reusable();
}

template <class Scalar>
void GatheredUnits<Scalar>::drop() {
  wait_until_reusable();
  for (auto& buffer : buffers_) buffer.occupant = -1;
}

#define KOZERO_INSTANTIATE(T) template class GatheredUnits<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
