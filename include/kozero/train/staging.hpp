// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// staging.hpp: a copy, on the host, of what this rank writes of the state,
// so that training goes on while it is written.
//   bytes a rank = 4 (1 + optimizer states) * its slices of all units        12 P/n under AdamW, in every placement
// Taken once at start, on the threads that will fill it; capture() is one copy through memory.
#pragma once
#include <kozero/core/ledger.hpp>
#include <kozero/train/host_slices.hpp>

namespace kozero::train {

/// A group's name in the file and this rank's own slices of it.
struct StateGroup {
  std::string name;  ///< "parameters", "optimizer/exp_avg"
  std::vector<DeviceSlice> slices;
};

class Staging {
 public:
  /// Books the copy under Memory::staging; a planning ledger gets no memory. Throws Error(deck) where it takes more
  /// than `limit_mib` (0: no limit): on the fullest rank, so that planning finds it for all.
  Staging(std::vector<StateGroup> groups, std::int64_t limit_mib, MemoryLedger& ledger);

  /// Copies the groups' present values. Waits for the device.
  void capture();
  /// The copies.
  [[nodiscard]] std::vector<io::TensorGroup<const float>> groups() const;

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::vector<StateGroup> groups_;
  std::int64_t bytes_ = 0;
  Kokkos::View<float*, Kokkos::SharedHostPinnedSpace> memory_;
};

}  // namespace kozero::train
