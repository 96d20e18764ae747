// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/zero/gathered_units.hpp>

namespace kozero::zero {

template <class Scalar>
GatheredUnits<Scalar>::GatheredUnits(const ParameterTable& table, dist::Communicator& comm, int ahead,
                                     MemoryLedger& ledger, Start start)
    : table_(table),
      comm_(comm),
      ahead_(ahead),
      start_(std::move(start)),
      places_(table, ahead),
      order_(table.num_units()) {
  for (const auto& [name, extent] : places_.buffers()) {
    buffers_.push_back({.memory = ledger.take<Scalar>(Memory::gathered, "gathered weights, " + name, extent)});
  }
}

template <class Scalar>
Vector<const Scalar> GatheredUnits<Scalar>::acquire(int unit) {
  if (num_held_ == 0) order_.reach(unit);  // beside another one it is a companion: the tied embedding of the head
  if (buffer(unit).unit != unit) start(unit);
  finish(buffer(unit));
  buffer(unit).held = true;
  ++num_held_;
  for (int steps = 1; steps <= ahead_; ++steps) {
    const int next = order_.ahead(steps);
    if (next >= 0 && buffer(next).unit != next && !buffer(next).held) start(next);
  }
  return whole(unit);
}

template <class Scalar>
void GatheredUnits<Scalar>::release(int unit) {
  buffer(unit).held = false;
  --num_held_;
}

template <class Scalar>
void GatheredUnits<Scalar>::start(int unit) {
  Buffer& mine = buffer(unit);
  require(!mine.held, "unit " + table_.unit(unit).name + " needs the slot that " +
                          table_.unit(std::max(mine.unit, 0)).name + " holds");
  finish(mine);
  mine.unit = unit;
  mine.pending = start_(unit, whole(unit));
  mine.under_way = true;
  mine.read = false;
}

template <class Scalar>
void GatheredUnits<Scalar>::finish(Buffer& buffer) {
  if (buffer.under_way) comm_.finish(buffer.pending);
  buffer.under_way = false;
}

template <class Scalar>
void GatheredUnits<Scalar>::settle() {
  for (auto& buffer : buffers_) {
    finish(buffer);
    if (!buffer.read) comm_.reclaim(buffer.pending);  // its earlier ones were read before it
    buffer.read = true;
  }
}

template <class Scalar>
void GatheredUnits<Scalar>::forget() {
  settle();
  for (auto& buffer : buffers_) buffer.unit = -1;
}

#define KOZERO_INSTANTIATE(T) template class GatheredUnits<T>;
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::zero
