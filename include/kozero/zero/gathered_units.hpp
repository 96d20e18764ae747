// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gathered_units.hpp: the gathered copies of sharded units, and the order in which a pass reads the units.
// acquire(u) waits for the gather of u and starts the gathers of the next units in that order. The units of a
// slot share at most held + ahead buffers.
#pragma once
#include <cstdint>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/distributed/distributed_array.hpp>

namespace kozero::zero {

/// How far ahead a pass gathers, and how many units it holds at once.
struct GatherOrder {
  int ahead = 0;  ///< units gathered before they are acquired
  int held = 1;   ///< units of blocks that backward recomputes together and holds at once (model::Recompute)
};

/// The order in which a pass reads the weights of its units, so that the next units can be gathered ahead.
///   forward: embedding, blocks, head, in the table's order      backward: the blocks downwards, not the embedding
/// With groups of `held` units of blocks: backward reads the last group downwards, then each earlier group upwards and
/// only once, since its units stay held. Backward ends at the first unit that trains. With the vocabulary in blocks,
/// the head is followed by these blocks from the last to the first, and then from the first to the last
/// (model/head.hpp). Adapters follow their unit. The order is a prediction: a unit that was not gathered ahead is
/// gathered when it is acquired.
class UnitOrder {
 public:
  explicit UnitOrder(const ParameterTable& table, int held = 1);

  /// A pass begins with unit 0.
  void begin() { position_ = 0; }
  /// Moves the pass to the next position of `unit` in the order.
  void reach(int unit);
  /// The unit `steps` >= 1 positions later, -1 past the end of the pass.
  [[nodiscard]] int ahead(int steps) const;
  /// Whether `unit` comes again before the position `steps` later.
  [[nodiscard]] bool comes_before(int unit, int steps) const;
  /// The whole order, from the first to the last use.
  [[nodiscard]] const std::vector<int>& all() const { return order_; }

 private:
  std::vector<int> order_;
  std::size_t position_ = 0;
};

/// CommunicatorOptions::under_way for a run. A gather starts `prefetch_units` units before its wait, and each unit in
/// between starts at most one gather and one reduction. The constant covers units acquired beside another unit and the
/// gathers beside a micro-step's last reduction (ShardedState::acquire).
constexpr std::uint64_t collectives_under_way(int prefetch_units) {
  return 16 + 2 * static_cast<std::uint64_t>(prefetch_units);
}

/// The schedule of stage 3's gathers: when a unit's gather is started, waited for and dropped.
///   acquire(u):             start the gather of u, unless u is gathered or under way  ->  wait for it
///                           ->  start the gathers of the next ahead + held - 1 units in UnitOrder, except those whose
///                               buffer is held or has a unit that is needed earlier
///   release(u):             u stays in its buffer until another unit needs the buffer, so that u is not gathered twice
///                           in a row
///   wait_until_reusable():  returns when no peer reads this rank's shards any more: they may change
///   drop():                 the shards have changed: every unit is gathered again
/// The schedule is the same on hosts and devices: only the communicator copies or waits.
template <class Scalar>
class GatheredUnits {
 public:
  /// `shards` outlive this object. Units without elements are never acquired.
  GatheredUnits(const ParameterTable& table, const distributed::DistributedArray<Scalar>& shards, GatherOrder order,
                MemoryLedger& ledger);

  /// The next unit is the pass's first; acquire(0) does the same.
  void begin_pass();
  /// All elements of the unit. Throws Error(internal) if another unit holds its buffer.
  Vector<const Scalar> acquire(int unit);
  void release(int unit);
  /// The elements of a unit that was acquired and is not released yet.
  [[nodiscard]] Vector<const Scalar> held(int unit) const { return whole_.full(unit); }
  void wait_until_reusable();
  void drop();

 private:
  struct Buffer {
    int occupant = -1;  // the unit gathered, or being gathered, into the buffer
    bool held = false;
    distributed::Transfer<Scalar> gather = {};
  };

  [[nodiscard]] Buffer& buffer(int unit) { return buffers_[whole_.buffer(unit)]; }
  void start(int unit);
  /// For shards on a disk: starts to read the unit's shard, which will be gathered soon.
  void expect(int unit) const;
  void start_ahead();

  ParameterTable table_;
  const distributed::DistributedArray<Scalar>& shards_;
  distributed::DistributedArray<Scalar> whole_;  // in a few buffers
  int ahead_;
  bool has_groups_;
  UnitOrder order_;
  std::vector<Buffer> buffers_;
  int num_held_ = 0;
};

}  // namespace kozero::zero
