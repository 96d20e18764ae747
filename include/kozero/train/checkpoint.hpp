// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp: saving and loading a run's state, under any placement and rank count, while training goes on.
//   saver.begin(order)   copies this rank's shards to host memory; a thread writes them on a communicator of its own
//   saver.ended(comm)    after each step: whether the save is complete, on all ranks
// The copy takes 4 (1 + optimizer states) bytes per element of the rank's shards: 12 P/n under AdamW, in every
// placement. A save writes every rank's own shards, also of a replicated state. A load reads the elements that the rank
// holds: whole units if the state is replicated. So the file does not depend on placement or rank count.
#pragma once
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/tensor_groups.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/run/run_folder.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::train {

/// Elements [begin, begin + values.extent(0)) of a unit.
struct DeviceRange {
  int unit = 0;
  std::int64_t begin = 0;
  Vector<float> values;
};

/// Ranges of units on the device (shards or whole units) and their copies on the host, for files. On a host build the
/// copies are the ranges' own memory, and fetch and store move nothing.
class HostRanges {
 public:
  explicit HostRanges(std::vector<DeviceRange> ranges);

  /// fetch copies device to host, store host to device.
  void fetch();
  void store();

  template <class T>
  [[nodiscard]] std::vector<io::RangeValues<T>> named() const {
    std::vector<io::RangeValues<T>> all;
    for (std::size_t i = 0; i < host_.size(); ++i) {
      all.push_back({device_[i].unit, device_[i].begin, HostVector<T>(host_[i].data(), host_[i].extent(0))});
    }
    return all;
  }

 private:
  using Mirror = decltype(Kokkos::create_mirror_view(Kokkos::HostSpace(), Vector<float>()));
  std::vector<DeviceRange> device_;
  std::vector<Mirror> host_;
};

/// A group's name in the file and this rank's own shards of it.
struct StateGroup {
  std::string name;  ///< "parameters", "optimizer/exp_avg"
  std::vector<DeviceRange> shards;
};

/// A host copy of the state that this rank writes, so that training goes on during the write. The memory is taken once
/// at start, on the threads that will fill it.
class Staging {
 public:
  /// Books the copy under Memory::staging; with a planning ledger no memory is taken. Throws Error(deck) if the copy on
  /// the fullest rank takes more than `limit_mib` (0: no limit), so that a plan finds the error for all ranks.
  Staging(std::vector<StateGroup> groups, std::int64_t limit_mib, MemoryLedger& ledger);

  /// Copies the groups' current values. Waits for the device.
  void capture();
  /// The copies.
  [[nodiscard]] std::vector<io::TensorGroup<const float>> groups() const;

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::vector<StateGroup> groups_;
  std::int64_t bytes_ = 0;
  Kokkos::View<float*, Kokkos::SharedHostPinnedSpace> memory_;
};

/// The groups that this rank writes: parameters, then the optimizer's states by name ("optimizer/exp_avg"). Each has
/// this rank's own shards, also of a replicated state, so that every element has one writer.
std::vector<StateGroup> owned_state(const Engine& engine);

/// The tensors that share their values: a tied embedding is also the head's matrix.
io::Ties ties_of(const Evaluator& evaluator);

/// The contents of a checkpoint of the current state. `shards` receive the values on the host; on a host build `shards`
/// refer to the state itself.
io::CheckpointContents contents_of(const Engine& engine, const io::CheckpointRecord& record,
                                   const std::map<std::string, std::string>& texts, std::vector<HostRanges>& shards);

/// Returns the bytes of the state's file. Collective. Throws Error(write), seen by all ranks.
std::int64_t save_checkpoint(const std::string& folder, Engine& engine, const io::CheckpointRecord& record,
                             const std::map<std::string, std::string>& texts = {});

/// Fills weights and optimizer state from a checkpoint's state file or a weights file and publishes the weights.
/// Returns the optimizer states that the file lacks; if any is missing, no optimizer state is read or changed.
/// Collective; `control` carries the agreements, since reading may take long. Throws Error(input), seen by all ranks.
io::AbsentState load_state(const std::string& file, Engine& engine, distributed::Communicator& control);

/// "bpe:300 <hash of the tokens' bytes>", equal for tokenizers with the same tokens in the same order; "none".
std::string identity_of(const io::Tokenizer* tokenizer);

/// The record of a checkpoint of the run in `folder` before its first step. The caller adds step, tokens and the rest.
io::CheckpointRecord record_of(const io::Deck& deck, const Settings& settings, const data::DataSet& data,
                               const std::string& folder);

/// CheckpointRecord::exactness of a run over `comm`.
std::map<std::string, std::string> exactness_of(const Settings& settings, const distributed::Communicator& comm);

// Names in CheckpointRecord::exactness that a load reads.
inline constexpr const char* kAccumulation = "zero.accumulation";
inline constexpr const char* kVocabBlock = "model.vocab_block";
inline constexpr const char* kArithmetic = "the version of the arithmetic";  ///< raised if equal decks get other bits
inline constexpr const char* kOrderOfSums = "the order of sums over ranks";  ///< kRankOrder, or a back end's name
inline constexpr const char* kRankOrder = "rank order";

/// Whether they are of two lessons of a curriculum, which may have other batches and data.
bool is_of_other_lesson(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine);

/// What differs from the checkpoint and changes the bits of a run that goes on from it, one text each, as "optim.lr is
/// 5e-4 and was 2e-3 at step 28": the deck's keys by io::Effect, the exactness that both records have, run.tuning, the
/// number of samples.
std::vector<std::string> changes_since(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine);

/// What makes a run unable to go on from a checkpoint: one text per difference, naming the key or the part of the model
/// with both values.
std::vector<std::string> disagreements(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine);

struct SaveOrder {
  std::shared_ptr<const io::HeldFolder> run_folder;
  io::CheckpointRecord record;
  std::map<std::string, std::string> texts;  ///< small files, written by rank 0
  std::int64_t keep = 0;                     ///< number of checkpoints to keep; 0: all
  bool keep_best = false;                    ///< also keep the one with the lowest validation loss
};

/// The outcome of a save; equal on all ranks, except the times and a problem that only this rank has seen.
struct SaveReport {
  std::int64_t step = 0;
  std::string folder;
  std::int64_t bytes = 0;  ///< of the state's file
  double seconds = 0.0;    ///< from begin() to the commit
  double stall_s = 0.0;    ///< part of `seconds` in which training was stalled
  bool is_best = false;    ///< has the lowest validation loss; set on rank 0, with keep_best
  std::optional<Error> problem = {};
};

/// Saves one checkpoint at a time. A saver thread writes the staged copy, on the saver's own communicator, while
/// training goes on. Its waits last while the ranks live (distributed/communicator.hpp), so that a slow disk does not
/// count as a lost rank. The training thread decides when a save takes too long. Without staging, begin() writes and
/// returns when the save is complete. Older checkpoints are pruned after the commit. The saver thread calls neither
/// Kokkos nor the training's communicator, and changes no bit of the training.
class CheckpointSaver {
 public:
  /// `staging`: nullptr for synchronous saves. `comm`: the saver's own, for control messages alone.
  CheckpointSaver(Engine& engine, Staging* staging, std::unique_ptr<distributed::Communicator> comm);
  /// Waits for a save that is under way.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Starts a save. No save may be under way.
  void begin(const SaveOrder& order);
  [[nodiscard]] bool under_way() const { return report_.valid(); }
  [[nodiscard]] bool asynchronous() const { return staging_ != nullptr; }
  /// The report of the save under way, once every rank's part has ended, else nullopt. Collective over `comm`, unless
  /// the save has failed on this rank alone, whose report is then returned at once.
  std::optional<SaveReport> ended(distributed::Communicator& comm);
  /// The same after waiting at most `longest_s`; if that does not suffice, under_way() stays true. Collective.
  std::optional<SaveReport> wait(distributed::Communicator& comm, double longest_s);
  /// The ranks that were still writing at the last call of ended() or wait(comm, s): "rank 1, rank 3". Equal on all
  /// ranks.
  [[nodiscard]] const std::string& slow_ranks() const { return slow_ranks_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Waits for this rank's part. nullopt if no save was under way.
  std::optional<SaveReport> wait();

 private:
  [[nodiscard]] SaveReport write(const SaveOrder& order, const io::CheckpointContents& contents) const;

  Engine& engine_;
  Staging* staging_;
  std::unique_ptr<distributed::Communicator> comm_;
  std::int64_t step_ = 0;  // of the newest save
  std::string slow_ranks_;
  std::shared_future<SaveReport> report_;  // declared after the members that its thread uses
};

}  // namespace kozero::train
