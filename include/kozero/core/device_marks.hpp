// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_marks.hpp: moments on the stream of the kernels, set without a wait, and the seconds between two of them.
//   const auto begin = marks.set(); ... kernels ...; const auto end = marks.set(); fence; marks.seconds(begin, end)
// On a GPU a mark is an event, reached when the kernels before it are done; on a host, where a kernel is done when its
// call returns, the time of the call.
#pragma once
#include <cstddef>
#include <memory>

namespace kozero {

class DeviceMarks {
 public:
  DeviceMarks();
  ~DeviceMarks();
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  /// A new mark behind all that was put on the stream.
  std::size_t set();
  /// After a fence. Throws Error(internal) where the device does not tell.
  [[nodiscard]] double seconds(std::size_t from, std::size_t to) const;

 private:
  struct Moments;
  std::unique_ptr<Moments> moments_;
};

}  // namespace kozero
