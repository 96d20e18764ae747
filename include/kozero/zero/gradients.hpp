// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gradients.hpp: the gradients of all units, from the addends of backward to the reduced gradient that updates use.
//   replicated | partial at rest: every unit has its addend; it is reduced in place into this rank's shard of it.
//   sharded at rest:              the addends of a slot's units share buffers; the shards are kept apart.
// The schedule of reductions: ready(u) starts the reduction of u; it travels while the next unit works, whose ready
// waits for it. A buffer is written again only after the peers have read it, so that blocks in slots have two where
// reductions overlap. With `ordered` accumulation several micro-steps are added up in an array of shards of its own.
// First use of a unit in a micro-step finds nothing contributed (ParameterAccess), or under `local` accumulation the
// earlier micro-steps' sum.
// What lookups add to a block of a tied vocabulary is summed over the step like a unit of its own, behind the table's,
// and added to the rest at the step's end: a fold of both in one would depend on how many ranks there are.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/distributed_array.hpp>
#include <kozero/zero/placement_row.hpp>

namespace kozero::kernels {
class SumOfSquares;
}

namespace kozero::zero {

/// One of a step's micro-steps.
struct MicroStep {
  int index = 0;
  int count = 1;  ///< of the step
  int ranks = 0;  ///< the first so many contribute: they have work in it; 0: all
};

class Gradients {
 public:
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// At most `micro_steps` a step, known at start: a single one needs no array of sums beside the full buffer. Without
  /// `overlap` ready(u) waits for the reduction of u.
  Gradients(const ParameterTable& table, const dist::Mesh& mesh, dist::Placement placement, Accumulation accumulation,
            int micro_steps, MemoryLedger& ledger, bool overlap = false);

  void begin_micro_step(const MicroStep& micro_step);
  /// The unit's addend on this rank, to be added into as ParameterAccess says. Valid until ready(unit).
  UnitGradient addend(int unit);
  /// The number under which addend() and ready() know the unit's lookups. Throws Error(internal) for a unit without a
  /// separate sum of them.
  [[nodiscard]] int lookups_of(int unit) const;
  /// The unit's addend is complete, zero where nobody asked for it: its reduction begins where the accumulation order
  /// says so.
  void ready(int unit);
  /// The next unit's weights are to be read: after some of these, the reduction that travels meanwhile is waited for.
  void note_acquired_unit();
  /// After the last micro-step: waits for what is under way and brings every unit to its placement (a replicated
  /// gradient is gathered).
  void finish();

  /// This rank's shard of the reduced gradient, after finish().
  [[nodiscard]] Vector<float> shard(int unit) const { return reduced_.shard(unit); }
  /// The whole reduced gradient of a unit, after finish(). Throws Error(internal) where gradients are not replicated.
  [[nodiscard]] Vector<float> full(int unit) const;

  /// The global 2-norm of the reduced gradient, by exact sums of fixed blocks (kernels/launch/exact_sum.hpp): the same
  /// bits for every placement and number of ranks. Waits, once, for all that was put on the device. Throws
  /// Error(internal, seen by all ranks) where two groups' norms differ.
  [[nodiscard]] double norm();
  /// The name of the first tensor with a non-finite element on any rank, "" where all are finite. Collective.
  [[nodiscard]] std::string first_non_finite() const;

  /// From now on a gradient that rests, between micro-steps or reduced, is held to the hash that it had when it was
  /// left. Costs waits for the device.
  void watch(bool watches);
  /// The unit of the first gradient that changed at rest since then, "" where none did. After finish().
  [[nodiscard]] std::string first_changed();

 private:
  [[nodiscard]] bool reduces_now() const;
  /// Sets to zero what no first contribution overwrites: the other tensors and the pads.
  void clear(int unit) const;
  /// The last unit whose addend used `unit`'s buffer, -1 where there was none.
  int& occupant(int unit) { return occupants_[addends_.buffer(unit)]; }
  void start_reduction(int unit);
  void wait_for_reduction(int unit);
  /// Returns when the unit's addend may be overwritten: it is reduced, and no peer reads it any more.
  void wait_until_reusable(int unit);
  /// Adds each unit's sum of lookups to its gradient.
  void add_lookups();

  /// The unit's gradient rests from here on, or is about to be used again.
  void note_resting(int unit, const Vector<float>& values);
  void check_rested(int unit, const Vector<float>& values);

  const ParameterTable& table_;
  std::vector<int> lookups_of_;  // by unit: their number in sums_table_, -1: none
  ParameterTable sums_table_;    // the units, and behind them the lookups that are summed apart
  dist::Placement placement_;
  Accumulation accumulation_;
  int micro_steps_;
  bool overlap_;
  dist::DistributedArray<float> addends_;
  std::optional<dist::DistributedArray<float>> sums_;  // of the micro-steps' reduced shards
  dist::DistributedArray<float> reduced_;              // sums_, or the shards inside the addends
  std::vector<dist::Transfer<float>> reductions_;      // by unit
  int under_way_ = -1;                                 // the unit whose reduction is started and not waited for
  int acquired_since_ = 0;                             // units, since it was started
  std::vector<int> occupants_;                         // by buffer of the addends
  MicroStep micro_step_;
  std::vector<bool> open_;  // by unit: its addend was handed out in this micro-step
  bool watches_ = false;
  std::vector<std::uint64_t> resting_;  // by unit: the hash of a gradient that rests
  std::string changed_;
  std::unique_ptr<kernels::SumOfSquares> squares_;
};

}  // namespace kozero::zero
