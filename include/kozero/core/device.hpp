// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device.hpp: the GPU of this rank as its driver describes it, memory of the host that it reaches, copies beside its
// kernels, and time stamps on their stream.
// A host build has no GPU: device memory is host memory, and a time stamp is the time of the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/memory_source.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

// The GPU that this rank computes on, as its driver describes it. On a host build there is none: the
// device's memory is the host's.

/// The host reads and writes device memory: there is only one memory.
inline constexpr bool kHostIsDevice = Kokkos::SpaceAccessibility<Kokkos::HostSpace, DeviceMemory>::accessible;

struct DeviceMemoryInfo {
  std::int64_t free = 0;
  std::int64_t total = 0;
};

/// "NVIDIA H200 at 0000:3b:00.0", the same on two ranks of a node exactly where they share a GPU; "" on a host build.
/// Kokkos must be up.
std::string device_name();

/// Bytes of the GPU, all processes' use counted; zeros on a host build, or where the driver does not tell.
DeviceMemoryInfo device_memory();

/// Floating point operations a second that the maker states for a GPU of this name: of its tensor cores in 16 bits
/// without sparsity, or of its other units in f32, which our f32 products use. 0 for a name that is not in the table.
/// NVIDIA's data sheets of the A100 (2020), H100 (2022) and H200 (2023).
double published_peak(const std::string& name, bool sixteen_bits);

/// Memory of the host that the device's kernels reach over the bus: for state that a GPU has no room for.
class HostMemory final : public MemorySource {
 public:
  HostMemory() = default;
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* share(const std::string& label, std::int64_t bytes) override;
  [[nodiscard]] Kind kind() const override { return Kind::host; }

 private:
  std::vector<void*> owned_;
};

// Copies between the host's memory and the device's, in order, beside the kernels and while the host works.
//   copies.start(to, from, bytes); ... copies.wait()
// On a host build both memories are one, and only tests copy: start fills `to` with NaN, and wait copies, so that a use
// of either array between the two shows.

class DeviceCopies {
 public:
  DeviceCopies();
  /// Waits.
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// Until wait() returns, neither range may be written, nor `to` be read. Throws Error(internal).
  void start(void* to, const void* from, std::int64_t bytes);
  /// Returns when all that was started is done. Throws Error(internal).
  void wait();

 private:
  struct Lane;
  std::unique_ptr<Lane> lane_;
};

// Moments on the stream of the kernels, set without a wait, and the seconds between two of them.
//   const auto begin = marks.set(); ... kernels ...; const auto end = marks.set(); fence; marks.seconds(begin, end)
// On a GPU a mark is an event, reached when the kernels before it are done; on a host, where a kernel is done when its
// call returns, the time of the call.

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
