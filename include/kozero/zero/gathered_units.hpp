// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gathered_units.hpp: the prefetch schedule of sharded units, its buffers, and the order in which a pass reads the
// units. acquire(u) waits for the gather of u and starts the gathers of the next `ahead` units in that order. The units
// of a slot share at most 1 + ahead buffers; a unit stays in its buffer until another unit needs the buffer.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::zero {

// How many buffers the units of a slot share, and which of them is whose.
//   a slot whose units are used one after another (the blocks) has 1 + ahead buffers, never more than it has units
//   any other slot has one      the i-th unit of a slot lies in its buffer i mod buffers
// So 1 + ahead units that follow one another have buffers of their own: one at work, the others under way.

class SlotBuffers {
 public:
  struct Buffer {
    std::string name;         ///< "slot 1", or "slot 1, buffer 2"
    std::int64_t extent = 0;  ///< elements of the slot's largest unit
  };

  SlotBuffers(const ParameterTable& table, int ahead);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Index into buffers().
  [[nodiscard]] std::size_t of(int unit) const { return of_unit_[static_cast<std::size_t>(unit)]; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> of_unit_;
};

// In which order a pass reads the weights of its units, so that the next ones can be gathered ahead.
//   forward 0, 1, ..., U - 1      backward U - 2, ..., 1      unit 0, the embedding, needs no weights in backward
// The order is a guess that costs nothing where it is wrong:
// a unit that was not gathered ahead is gathered when it is used.

class UnitOrder {
 public:
  explicit UnitOrder(int num_units);

  /// The pass has come to `unit`: forward again where it is 0, else to its next place in the order.
  void reach(int unit);
  /// The unit that is used `steps` >= 1 later, -1 past the end of the pass.
  [[nodiscard]] int ahead(int steps) const;

 private:
  std::vector<int> order_;
  std::size_t place_ = 0;
};

// The schedule of stage 3's gathers: when a unit's gather is started, waited for and forgotten.
//   acquire(u):  start the gather of u, unless it is there or under way  ->  finish it
//                ->  start those of the next `ahead` units in UnitOrder whose buffers are free, to travel meanwhile
//   release(u):  u stays in its buffer until another unit needs that, so that it is not gathered twice in a row
//   settle():    the peers have read this rank's slices: they may change      forget(): they did
// Nothing here copies or waits but the communicator, so that one schedule serves hosts and devices.

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
