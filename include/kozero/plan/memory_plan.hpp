// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_plan.hpp: the memory of a run's fullest rank (rank 0), planned by the constructors that training runs.
// For comparison with the booked lines, the bytes of model states for P parameters on n ranks:
//   f32     stage 0: 16 P     1: 8 P + 8 P/n      2: 4 P + 12 P/n     3: 16 P/n
//   16 bits stage 0: 18 P     1: 6 P + 12 P/n     2: 2 P + 16 P/n     3: 18 P/n      with master weights, gradients f32
// Rajbhandari et al. 2020, arXiv:1910.02054.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/settings.hpp>

namespace kozero::plan {

/// Bytes of device memory and of host memory. On a host build both are the same memory, and each number is the total.
struct DeviceAndHost {
  std::int64_t device = 0;
  std::int64_t host = 0;

  /// A room of 0 is unknown, and any number of bytes fits.
  [[nodiscard]] bool fit(const DeviceAndHost& room) const;
};

/// Bytes that a rank sends, on average over the ranks.
struct BytesSent {
  std::int64_t all = 0;
  std::int64_t across = 0;    ///< part of `all` sent to ranks of other groups
  std::int64_t gathered = 0;  ///< part of `all` sent by gathers
  std::int64_t calls = 0;     ///< number of reductions and gathers
  std::int64_t gathers = 0;   ///< number of gathers
};

/// The collectives of a step over all ranks with full arrays of one size.
struct SentArrays {
  std::int64_t bytes = 0;       ///< of a full array
  std::int64_t reductions = 0;  ///< per step
  std::int64_t gathers = 0;     ///< per step
};

struct MemoryPlan {
  bool on_gpus = false;
  std::string backend;  ///< of all ranks
  int stage = 0;
  int num_ranks = 1;
  Precision precision = Precision::f32;
  std::int64_t num_parameters = 0;
  std::int64_t num_trainable = 0;  ///< parameters that are not frozen
  std::int64_t base_bytes = 0;     ///< of the frozen base of adapters, in one copy; 0 without adapters
  int num_states = 2;              ///< values of optimizer state per trainable parameter
  std::int64_t micro_batch = 1;
  std::array<std::int64_t, kMemoryNames.size()> bytes{};  ///< by category
  std::vector<MemoryLedger::Line> lines;
  double flops_per_token = 0.0;  ///< floating point operations of training on one token
  int ranks_per_group = 1;
  BytesSent sent;                  ///< per step
  std::vector<SentArrays> arrays;  ///< sent per step, without groups

  [[nodiscard]] std::int64_t of(Memory category) const { return bytes[static_cast<std::size_t>(category)]; }
  /// The sum over all categories but disk.
  [[nodiscard]] std::int64_t total() const;
  /// On GPUs, staging is host memory and all other categories are device memory.
  [[nodiscard]] DeviceAndHost needed() const;
};

/// Bytes that a rank sends per step, for V bytes of gradients (blocks of a tied vocabulary twice) and W of weights, in
/// units that train:
///   stages 0 to 2:  (n - 1)/n (A V + W) with A micro-steps (local accumulation: A = 1)
///   stage 3:        (n - 1)/n (A V + what is gathered of W): each unit, frozen ones too, wherever UnitOrder has it,
///                   unless it still is in its buffer
/// A rank without work in a step's last micro-step sends less. With G groups of g ranks, weights are gathered among g
/// ranks; a sum sends (n - 1)/n V as above, of which (G - 1)/G V go to other groups; copying the finished gradients to
/// the other groups sends (G - 1)/n V more.
BytesSent bytes_sent(const train::Settings& settings, const ParameterTable& table, int num_ranks);

/// The same collectives by size, for ranks that are one group. Empty for a quantized base of adapters.
std::vector<SentArrays> arrays_sent(const train::Settings& settings, const ParameterTable& table);

/// The plan of `settings` for rank 0 of `num_ranks` ranks that communicate by `backend`. Allocates nothing.
MemoryPlan memory_plan(const train::Settings& settings, const std::string& backend, int num_ranks);

/// An engine of one rank that only plans: its tables and the names of its states are there, its arrays are not.
class PlannedEngine {
 public:
  explicit PlannedEngine(train::Settings settings);

  const train::Engine* operator->() const { return engine_.get(); }

 private:
  MemoryLedger ledger_{MemoryLedger::Mode::plan};
  std::unique_ptr<distributed::Communicator> comm_;
  std::unique_ptr<train::Engine> engine_;
};

/// Bytes per rank of parameters, gradients and optimizer state (with the master) by the formula of Rajbhandari et al.
/// 2020, arXiv:1910.02054, for the stage, precision, ranks per group and numbers that the plan gives. Only trainable
/// parameters have gradients and state, and the base of adapters has no master. Pads are not counted.
double model_state_bytes(const MemoryPlan& plan);

/// The plans of all four stages for a deck on `num_ranks` ranks that communicate by `backend`. A stage without the
/// deck's accumulation order is planned with `ordered`.
std::vector<MemoryPlan> plans_of_all_stages(const io::Deck& deck, const std::string& backend, int num_ranks,
                                            std::int64_t data_vocab);

/// The deck in another stage. Stages 2 and 3 keep no whole gradient, so their accumulation is ordered.
io::Deck in_stage(io::Deck deck, int stage);

/// An override of a deck.
struct Change {
  std::string key;    ///< "zero.stage"
  std::string value;  ///< "3"
  bool operator==(const Change&) const = default;
  [[nodiscard]] std::string text() const { return key + "=" + value; }
};

/// "zero.stage=3 train.recompute=full"
std::string text_of(const std::vector<Change>& changes);

/// The overrides that turn `from` into `to`. The keys that first_fit changes are last, in the order in which it tries
/// them; the others have the schema's order.
std::vector<Change> changes_between(io::Deck from, io::Deck to);

/// A deck changed so that a rank's memory suffices, and the largest micro-batch that fits with it.
struct Fit {
  io::Deck deck;
  std::vector<Change> changes;  ///< from the given deck; empty: it fits unchanged
  MemoryPlan plan;
  std::int64_t largest_micro_batch = 1;  ///< doubled while the plan fits, at most a rank's share of the batch
  MemoryPlan at_largest;
  /// The plan with the smallest zero.shard_group of whole nodes that also fits and sends over 10 % less between groups.
  /// Only where all ranks are one group and their nodes are known (nccl: 8 ranks per node unless the deck sets them).
  std::optional<MemoryPlan> in_groups = {};
};

/// For a plan whose ranks are one group: bytes that a rank sends beyond its own `ranks` consecutive ranks.
std::int64_t sent_beyond(const MemoryPlan& plan, int ranks);

/// The first of these that fits, in order: the deck's stage, then the higher stages; the same with train.recompute =
/// selective, then full; all of these with half of train.micro_batch, a quarter, ...; all of these with
/// zero.shard_group = all; then also with the optimizer's state offloaded (to a disk; from a GPU to the host's memory);
/// then also with the parameters offloaded; then also with a smaller zero.offload_mib. The last four are each tried
/// without model.vocab_block, then with 8192 and with 2048. nullopt if nothing fits.
std::optional<Fit> first_fit(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                             const DeviceAndHost& room);

/// The plans of a deck with another value of train.recompute.
struct Recomputed {
  std::string recompute;  ///< train.recompute
  std::vector<MemoryPlan> plans;
};

/// For each word of train.recompute that the deck does not have.
std::vector<Recomputed> plans_recomputed(const io::Deck& deck, const std::string& backend, int num_ranks,
                                         std::int64_t data_vocab);

/// The deck's plan with at most one change.
struct Alternative {
  io::Deck deck;
  MemoryPlan plan;
};

/// The deck as it is, then with each single change that may save memory in its stage, or traffic between nodes.
std::vector<Alternative> alternatives(const io::Deck& deck, const std::string& backend, int num_ranks,
                                      std::int64_t data_vocab);

/// For each level of recomputation, a line for each category that differs from `plans`, and a line of totals, in the
/// unit of table_of(plans).
std::string table_of(const std::vector<Recomputed>& levels, const std::vector<MemoryPlan>& plans);

/// A table of the plans, one column per stage, in MiB or GiB, with a line of model_state_bytes() and the lowest stage
/// that fits `room`.
std::string table_of(const std::vector<MemoryPlan>& plans, const DeviceAndHost& room);

/// The unit in which the plans are printed: GiB from 16 GiB on (on GPUs from 1 GiB on), KiB below 1 MiB, else MiB.
struct SizeUnit {
  const char* name;
  double bytes;
  int digits;
};
SizeUnit unit_of(const std::vector<MemoryPlan>& plans);
/// "74.88"; of bytes that these digits show as 0, one digit: "0.002".
std::string text_in(const SizeUnit& unit, double bytes);

/// A line of totals in `unit`, on GPUs of GPU memory, for the deck's train.recompute and for each that keeps fewer
/// activations, one column per stage. An asterisk marks totals that fit `room`.
std::string totals_of(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                      const DeviceAndHost& room, const SizeUnit& unit);

}  // namespace kozero::plan
