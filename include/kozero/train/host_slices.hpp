// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host_slices.hpp: named parts of units on the device, with their copies on the host, for files.
// On a host build the copies are the parts' own memory, and fetch and store move nothing.
#pragma once
#include <vector>

#include <kozero/io/tensor_group.hpp>

namespace kozero::train {

/// Elements [begin, begin + values.extent(0)) of a unit.
struct DeviceSlice {
  int unit = 0;
  std::int64_t begin = 0;
  Vector<float> values;
};

class HostSlices {
 public:
  explicit HostSlices(std::vector<DeviceSlice> slices);

  /// Device to host, host to device.
  void fetch();
  void store();

  template <class T>
  [[nodiscard]] std::vector<io::UnitSlice<T>> named() const {
    std::vector<io::UnitSlice<T>> all;
    for (std::size_t i = 0; i < host_.size(); ++i) {
      all.push_back({device_[i].unit, device_[i].begin, HostVector<T>(host_[i].data(), host_[i].extent(0))});
    }
    return all;
  }

 private:
  using Mirror = decltype(Kokkos::create_mirror_view(Kokkos::HostSpace(), Vector<float>()));
  std::vector<DeviceSlice> device_;
  std::vector<Mirror> host_;
};

}  // namespace kozero::train
