// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_update.hpp: the update of optimizer state that is in the host's memory while weights and gradients are on a
// GPU. The update runs on the host's cores, beside the state, so that only gradients and weights cross the bus:
//   for each part of the rank's shards:   gradient (and the weights, in f32)   GPU -> buffer
//                                         optimizer on the host's cores        buffer and state
//                                         new weights                          buffer -> GPU
// Three buffers: while a part is updated, the next part's gradient arrives and the previous part's weights leave.
// The optimizer is elementwise, so cutting its arrays changes no bit.
// Ren et al. 2021, "ZeRO-Offload", arXiv:2101.06840.
#pragma once
#include <array>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/optim/optimizer.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::train {

/// Elements [first, first + extent) of an update range.
struct UpdatePart {
  std::size_t range = 0;
  std::int64_t first = 0;
  std::int64_t extent = 0;
};

/// All elements of the ranges in order, in parts of at most `most` elements.
std::vector<UpdatePart> parts_of(const std::vector<UnitRange>& ranges, std::int64_t most);

template <class Scalar>
class HostUpdate {
 public:
  /// Books its buffers as staging: at most `offload.bytes`, or 64 elements each. `host` outlives the object.
  HostUpdate(const std::vector<zero::UpdateRange<Scalar>>& ranges, const Offload& offload, MemoryLedger& ledger,
             MemorySource& host);

  /// Updates all ranges by an optimizer whose state is on the host. The device has finished the gradients; when the
  /// call returns, it has the new weights.
  void run(optim::Optimizer<Scalar>& optimizer, const optim::Step& step);

 private:
  /// A part's arrays on the host; extent 0 if the host accesses the array itself.
  struct Buffer {
    Vector<float> gradient;
    Vector<float> master;
    Vector<Scalar> stored;
  };

  [[nodiscard]] optim::Target<Scalar> target_on_device(const UpdatePart& part) const;
  void start_arrival(std::size_t index);
  void start_departure(std::size_t index);
  [[nodiscard]] Buffer& buffer(std::size_t index) { return buffers_[index % buffers_.size()]; }

  std::vector<zero::UpdateRange<Scalar>> ranges_;
  std::vector<UpdatePart> parts_;
  bool moves_master_;  // master weights lie on the device
  bool moves_stored_;  // 16-bit weights lie on the device
  std::array<Buffer, 3> buffers_;
  DeviceCopies arrivals_;
  DeviceCopies departures_;
};

}  // namespace kozero::train
