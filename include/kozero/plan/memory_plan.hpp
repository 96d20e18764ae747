// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_plan.hpp: what a run needs of memory on its fullest rank (rank 0), by the constructors that training runs.
// Model states for P parameters on n ranks, bytes, beside the booked lines:
//   f32     stage 0: 16 P     1: 8 P + 8 P/n      2: 4 P + 12 P/n     3: 16 P/n
//   16 bits stage 0: 18 P     1: 6 P + 12 P/n     2: 2 P + 16 P/n     3: 18 P/n      with master weights, gradients f32
// Rajbhandari et al. 2020, arXiv:1910.02054.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/train/settings.hpp>

namespace kozero::plan {

/// Bytes in the memory that arrays lie in, and in the host's. Where these are one, each has all of them.
struct DeviceAndHost {
  std::int64_t device = 0;
  std::int64_t host = 0;

  /// A room of 0 is not known, and refuses nothing.
  [[nodiscard]] bool fit(const DeviceAndHost& room) const;
};

/// Bytes that a rank sends, on average over the ranks.
struct BytesSent {
  std::int64_t all = 0;
  std::int64_t across = 0;  ///< of them, to ranks of other groups
  std::int64_t calls = 0;   ///< of reductions and gathers
};

struct MemoryPlan {
  bool on_gpus = false;
  int stage = 0;
  int num_ranks = 1;
  Precision precision = Precision::f32;
  std::int64_t num_parameters = 0;
  std::int64_t micro_batch = 1;
  std::array<std::int64_t, kMemoryNames.size()> bytes{};  ///< by category
  std::vector<MemoryLedger::Line> lines;
  double flops_per_token = 0.0;  ///< of a training step
  int ranks_a_group = 1;
  BytesSent sent;  ///< in a step

  [[nodiscard]] std::int64_t of(Memory category) const { return bytes[static_cast<std::size_t>(category)]; }
  /// Without what lies on a disk.
  [[nodiscard]] std::int64_t total() const;
  /// On a GPU only staging is the host's.
  [[nodiscard]] DeviceAndHost needed() const;
};

/// What a rank sends in a step, for V bytes of gradients (blocks of a tied vocabulary twice) and W of weights:
///   stages 0 to 2:  (n - 1)/n (A V + W) with A micro-steps (local accumulation: A = 1)
///   stage 3:        (n - 1)/n (A V + what is gathered of W): each unit wherever UnitOrder has it, unless it still is
///                   in its buffer
/// Less where ranks have no work in a step's last micro-step. With G groups of g ranks weights are gathered among g, a
/// sum sends (n - 1)/n V as before, of it (G - 1)/G to other groups, and the finished gradients (G - 1)/n V more.
BytesSent bytes_sent(const train::Settings& settings, const ParameterTable& table, int num_ranks);

/// The plan of `settings` on rank 0 of `num_ranks` that talk by `backend`, with nothing allocated.
MemoryPlan memory_plan(const train::Settings& settings, const std::string& backend, int num_ranks);

/// The formula's bytes of parameters, gradients and optimizer state (AdamW, and the master), per rank, sharded over
/// `ranks`.
double model_state_bytes(Precision precision, int stage, std::int64_t num_parameters, int ranks);

/// The plans of all four stages for a deck on `num_ranks` that talk by `backend`. Where the deck's accumulation order
/// is not available in another stage, that stage is planned with `ordered`.
std::vector<MemoryPlan> plans_of_all_stages(const io::Deck& deck, const std::string& backend, int num_ranks,
                                            std::int64_t data_vocab);

/// What of a deck to change so that a rank has room, and the largest micro-batch that it has room for then.
struct Fit {
  std::vector<std::string> overrides;  ///< "zero.stage=3"; none: it fits as it is
  io::Deck deck;                       ///< with them
  MemoryPlan plan;
  std::int64_t largest_micro_batch = 1;  ///< the deck's, doubled while it fits, at most a rank's share of the batch
  MemoryPlan at_largest;
  /// The smallest zero.shard_group of whole nodes that has room too and sends less between groups, where the ranks are
  /// one group so far and their nodes are known (nccl: 8 ranks where not).
  std::optional<MemoryPlan> in_groups = {};
};

/// Bytes that a rank sends to others than the `ranks` consecutive ones it is among, of a plan whose ranks are one
/// group.
std::int64_t sent_beyond(const MemoryPlan& plan, int ranks);

/// The first that fits, of these in order: the deck's stage and those above it; the same with train.recompute =
/// selective, then full; all of it with half of train.micro_batch, a quarter, ...; all of that with
/// zero.shard_group = all; then with the optimizer's state offloaded (to a disk; a GPU's to the host's memory), with
/// the parameters too, and with a smaller zero.offload_mib. Each of these last four without and with model.vocab_block
/// = 8192, then 2048. Nothing where none fits.
std::optional<Fit> first_fit(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                             const DeviceAndHost& room);

/// The plans of a deck whose activations are computed again.
struct Recomputed {
  std::string recompute;  ///< train.recompute
  std::vector<MemoryPlan> plans;
};

/// For each train.recompute that keeps less than the deck's: none, selective, full.
std::vector<Recomputed> plans_that_keep_less(const io::Deck& deck, const std::string& backend, int num_ranks,
                                             std::int64_t data_vocab);

/// A line for each category and train.recompute in which they differ from `plans`, and their totals.
std::string table_of(const std::vector<Recomputed>& levels, const std::vector<MemoryPlan>& plans);

/// A table of the plans, a column a stage, with the formula's line and the lowest stage that a rank has `room` for.
std::string table_of(const std::vector<MemoryPlan>& plans, const DeviceAndHost& room);

/// A line of totals for the deck's train.recompute and each that keeps less, a column a stage; those with room are
/// marked.
std::string totals_of(const io::Deck& deck, const std::string& backend, int num_ranks, std::int64_t data_vocab,
                      const DeviceAndHost& room);

}  // namespace kozero::plan
