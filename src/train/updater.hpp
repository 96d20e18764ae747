// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// updater.hpp: the optimizer with its states, and the update of this rank's ranges, wherever their state is.
//   in the device's memory   one call of the optimizer for each range
//   in files                 part by part: wait for a part's pages, compare its bits with those last written,
//                            update it, record its bits, release its pages
//   in a GPU's host memory   HostUpdate
#pragma once
#include <memory>
#include <vector>

#include <kozero/core/disk_memory.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/sharded_state.hpp>
#include "src/train/disk_check.hpp"
#include "src/train/host_update.hpp"

namespace kozero::train {

template <class Scalar>
class Updater {
 public:
  /// Takes the optimizer's states from `ledger`, or from `offloaded` by settings.offload. `state` and `offloaded`
  /// outlive the object.
  Updater(const Settings& settings, const ParameterTable& table, const zero::ShardedState<Scalar>& state,
          MemoryLedger& ledger, MemorySource* offloaded);

  [[nodiscard]] const optim::Optimizer<Scalar>& optimizer() const { return *optimizer_; }
  /// The elements that this rank updates, in the order of the optimizer's states.
  [[nodiscard]] const std::vector<UnitRange>& ranges() const { return ranges_; }

  /// Before the first step: begins to read state on disk, whose present bits are taken as right.
  void begin();
  /// After begin(), if other code has filled the state: its present bits are taken as right.
  void take_as_right();
  /// Updates all ranges by the reduced gradients.
  void update(const optim::Step& step);
  /// Throws Error(input), seen by all ranks, if state on disk was changed since its last update: no step can be trusted
  /// then. Collective.
  void require_unchanged_disk(distributed::Communicator& comm) const;
  /// Follows reads of state on disk for a file; nullptr if none is there or no step was begun.
  [[nodiscard]] io::ReadWatch* disk_watch() const { return disk_.check.get(); }

 private:
  /// State in files: the pages that are read ahead, and the bits that the last update wrote.
  struct OnDisk {
    std::unique_ptr<PageStream> pages;
    std::unique_ptr<DiskCheck> check;
  };

  /// Parts that one optimizer call updates each. With state on disk, parts are small enough that memory holds several.
  [[nodiscard]] std::vector<UpdatePart> parts_of_update(const Offload& offload) const;
  /// The arrays of each part, in update order.
  [[nodiscard]] std::vector<std::vector<DiskCheck::Array>> arrays_of_parts() const;
  /// Arrays of units that do not train: frozen weights, the base of adapters.
  [[nodiscard]] std::vector<DiskCheck::Array> resting_arrays() const;

  const zero::ShardedState<Scalar>& state_;
  std::vector<UnitRange> ranges_;
  std::unique_ptr<optim::Optimizer<Scalar>> optimizer_;
  std::unique_ptr<HostUpdate<Scalar>> host_update_;  // set if optimizer state is in a GPU's host memory
  std::vector<UpdatePart> parts_;                    // empty with host_update_
  std::int64_t pages_bytes_ = 0;                     // memory for pages of state on disk; 0: none is there
  OnDisk disk_;                                      // filled by begin() if pages_bytes_ > 0
};

}  // namespace kozero::train
