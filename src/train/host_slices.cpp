// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/train/host_slices.hpp>

namespace kozero::train {

HostSlices::HostSlices(std::vector<DeviceSlice> slices) : device_(std::move(slices)) {
  for (const auto& slice : device_) host_.push_back(Kokkos::create_mirror_view(Kokkos::HostSpace(), slice.values));
}

void HostSlices::fetch() {
  for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(host_[i], device_[i].values);
}

void HostSlices::store() {
  for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(device_[i].values, host_[i]);
}

}  // namespace kozero::train
