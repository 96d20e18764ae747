// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gradients.hpp: the gradients of all units, from the addends of backward to the reduced gradient that updates use.
//   replicated | partial at rest: every unit has its own addend, reduced in place into this rank's shard of the unit.
//   sharded at rest:              the addends of a slot's units share buffers; the shards have memory of their own.
// The schedule of reductions: ready(u) starts the reduction of u, which runs while the next unit computes; the next
// unit's ready waits for it. A buffer is overwritten only after the peers have read it, so slots of blocks have two
// buffers where reductions overlap. With `ordered` accumulation, several micro-steps are summed in a separate array of
// shards. At its first use in a micro-step a unit's addend has no contributions (UnitGradient::begins), or under
// `local` accumulation holds the earlier micro-steps' sum. The lookups' gradient of a block of a tied vocabulary is
// summed over the step as an extra unit behind the table's units, and added to the block's gradient at the step's end.
// A single sum of both would depend on the number of ranks.
// A frozen unit has no memory, no reduction and no part in the norm. In a unit of which only some tensors are frozen,
// their gradients are set to zero before the reduction.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/distributed_array.hpp>
#include <kozero/zero/placement_row.hpp>

namespace kozero::kernels {
class SumOfSquares;
}

namespace kozero::zero {

/// One of a step's micro-steps.
struct MicroStep {
  int index = 0;
  int count = 1;  ///< micro-steps of the step
  int ranks = 0;  ///< only the first `ranks` ranks have work and contribute; 0: all
};

class Gradients {
 public:
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// A step has at most `micro_steps`; a single micro-step needs no array of sums beside whole addends. Without
  /// `overlap` ready(u) waits for the reduction of u.
  Gradients(const ParameterTable& table, const distributed::Mesh& mesh, distributed::Placement placement,
            Accumulation accumulation, int micro_steps, MemoryLedger& ledger, bool overlap = false);

  void begin_micro_step(const MicroStep& micro_step);
  /// The unit's addend on this rank, which backward adds to as ParameterAccess says. Valid until ready(unit).
  UnitGradient addend(int unit);
  /// The number to pass to addend() and ready() for the unit's lookups. Throws Error(internal) for a unit whose lookups
  /// have no separate sum.
  [[nodiscard]] int lookups_of(int unit) const;
  /// Marks the unit's addend as complete (zero if addend() was not called) and starts its reduction, under `local`
  /// accumulation only in the step's last micro-step.
  void ready(int unit);
  /// Called when a unit's weights are acquired. After several calls, waits for the reduction that is under way.
  void note_acquired_unit();
  /// After the last micro-step: waits for the reduction under way and brings every unit to its placement (replicated
  /// gradients are gathered).
  void finish();

  /// This rank's shard of the reduced gradient, after finish().
  [[nodiscard]] Vector<float> shard(int unit) const { return reduced_.shard(unit); }
  /// The whole reduced gradient of a unit, after finish(). Throws Error(internal) if gradients are not replicated.
  [[nodiscard]] Vector<float> full(int unit) const;

  /// The global 2-norm of the reduced gradient, by exact sums of fixed blocks (kernels/launch/exact_sum.hpp): the same
  /// bits for every placement and number of ranks. Collective. Waits once for all work on the device. Throws
  /// Error(internal, seen by all ranks) if two groups' norms differ.
  [[nodiscard]] double norm();
  /// The name of the first tensor with a non-finite element on any rank, "" if all are finite. Collective.
  [[nodiscard]] std::string first_non_finite() const;

  /// From now on compares each gradient that rests (between micro-steps, or reduced) with its hash from when it was
  /// last written. Costs waits for the device.
  void watch(bool watches);
  /// The unit of the first gradient that changed at rest since watch(true), "" if none did. After finish().
  [[nodiscard]] std::string first_changed();

 private:
  [[nodiscard]] bool reduces_now() const;
  /// Zeroes the unit's addend, except the tensors that their first contribution overwrites.
  void clear(int unit) const;
  /// Zeroes the addends of the unit's frozen tensors.
  void clear_frozen(int unit) const;
  /// The last unit whose addend used `unit`'s buffer, -1 if there was none.
  int& occupant(int unit) { return occupants_[addends_.buffer(unit)]; }
  void start_reduction(int unit);
  void wait_for_reduction(int unit);
  /// Returns when the unit's addend may be overwritten: it is reduced, and no peer reads it any more.
  void wait_until_reusable(int unit);
  /// Adds each unit's sum of lookups to the unit's gradient.
  void add_lookups();

  /// Called when the unit's gradient comes to rest, and before it is used again.
  void note_resting(int unit, const Vector<float>& values);
  void check_rested(int unit, const Vector<float>& values);

  const ParameterTable& table_;
  std::vector<int> units_;       // that train
  std::vector<int> lookups_of_;  // by unit: the lookups' number in sums_table_, -1: none
  ParameterTable sums_table_;    // the units that train, and behind them the lookups with separate sums
  distributed::Placement placement_;
  Accumulation accumulation_;
  int micro_steps_;
  bool overlap_;
  distributed::DistributedArray<float> addends_;
  std::optional<distributed::DistributedArray<float>> sums_;  // of the micro-steps' reduced shards
  distributed::DistributedArray<float> reduced_;              // sums_, or the shards inside the addends
  std::vector<distributed::Transfer<float>> reductions_;      // by unit
  int under_way_ = -1;                                        // the unit whose reduction was started and not waited for
  int acquired_since_ = 0;                                    // units acquired since that start
  std::vector<int> occupants_;                                // by buffer of the addends
  MicroStep micro_step_;
  std::vector<bool> open_;  // by unit: its addend was handed out in this micro-step
  bool watches_ = false;
  std::vector<std::uint64_t> resting_;  // by unit: the hash of a gradient that rests
  std::string changed_;
  std::unique_ptr<kernels::SumOfSquares> squares_;
};

}  // namespace kozero::zero
