// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gathered_units.hpp: the schedule of stage 3's gathers: when a unit's gather is started, waited for and forgotten.
//   acquire(u):  start the gather of u, unless it is there or under way  ->  finish it
//                ->  start those of the next `ahead` units in UnitOrder whose buffers are free, to travel meanwhile
//   release(u):  u stays in its buffer until another unit needs that, so that it is not gathered twice in a row
//   settle():    the peers have read this rank's slices: they may change      forget(): they did
// Nothing here copies or waits but the communicator, so that one schedule serves hosts and devices.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/zero/slot_buffers.hpp>
#include <kozero/zero/unit_order.hpp>

namespace kozero::zero {

/// CommunicatorOptions::under_way for a run: a gather is started `prefetch_units` units before it is finished, and each
/// unit in between starts one gather and one reduction at most; the rest is for companions and the step's ends.
constexpr std::uint64_t collectives_under_way(int prefetch_units) {
  return 16 + 2 * static_cast<std::uint64_t>(prefetch_units);
}

template <class Scalar>
class GatheredUnits {
 public:
  /// Starts the all-gather of a unit into `whole`.
  using Start = std::function<dist::Pending(int unit, const Vector<Scalar>& whole)>;

  GatheredUnits(const ParameterTable& table, dist::Communicator& comm, int ahead, MemoryLedger& ledger, Start start);

  /// All elements of the unit. Throws Error(internal) where another unit holds its buffer.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);
  /// What acquire returned of a unit that is not released yet.
  [[nodiscard]] Vector<const Scalar> held(int unit) { return whole(unit); }
  void settle();
  void forget();

 private:
  struct Buffer {
    Vector<Scalar> memory;
    int unit = -1;           // what it holds, or is to hold
    bool under_way = false;  // started, not finished
    bool read = true;        // by all peers
    bool held = false;
    dist::Pending pending = {};
  };

  [[nodiscard]] Buffer& buffer(int unit) { return buffers_[places_.of(unit)]; }
  [[nodiscard]] Vector<Scalar> whole(int unit) { return slice(buffer(unit).memory, 0, table_.unit(unit).extent); }
  void start(int unit);
  void finish(Buffer& buffer);

  const ParameterTable& table_;
  dist::Communicator& comm_;
  int ahead_;
  Start start_;
  SlotBuffers places_;
  UnitOrder order_;
  std::vector<Buffer> buffers_;
  int num_held_ = 0;
};

}  // namespace kozero::zero
