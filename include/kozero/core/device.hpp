// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device.hpp: the GPU of this rank as its driver describes it, host memory that the GPU reaches, copies that run beside
// the GPU's kernels, and time stamps on the kernels' stream.
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

/// Whether device memory is host memory, so that the host reads and writes it.
inline constexpr bool kHostIsDevice = Kokkos::SpaceAccessibility<Kokkos::HostSpace, DeviceMemory>::accessible;

struct DeviceMemoryInfo {
  std::int64_t free = 0;
  std::int64_t total = 0;
};

/// "NVIDIA H200 at 0000:3b:00.0", equal on two ranks of a node if and only if they share a GPU; "" on a host build.
/// Kokkos must be initialized.
std::string device_name();

/// Bytes of the GPU's memory; all processes' use counts. Zeros on a host build, or if the driver's query fails.
DeviceMemoryInfo device_memory();

/// The published peak of a GPU with this name, in floating point operations per second: of the tensor cores in 16 bits
/// without sparsity, or of the f32 units, which our f32 products use. 0 for a name that is not in the table.
/// NVIDIA's data sheets of the A100 (2020), H100 (2022) and H200 (2023).
double published_peak(const std::string& name, bool sixteen_bits);

/// Host memory that the device's kernels reach over the bus, for state that does not fit into the GPU's memory.
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

/// Copies between host and device memory, executed in order, while kernels run and the host works.
///   copies.start(to, from, bytes); ... copies.wait()
/// On a host build both memories are the same, and only tests copy: start fills `to` with NaN and wait copies, so that
/// a test detects a use of either array between the two calls.
class DeviceCopies {
 public:
  DeviceCopies();
  /// On a GPU, waits for all copies.
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// Until wait() returns, neither range may be written, and `to` must not be read. Throws Error(internal) on a CUDA
  /// error.
  void start(void* to, const void* from, std::int64_t bytes);
  /// Returns when all started copies are complete. Throws Error(internal) on a CUDA error.
  void wait();

 private:
  struct Lane;
  std::unique_ptr<Lane> lane_;
};

/// Marks on the stream of the kernels, set without waiting, and the seconds between two marks.
///   const auto begin = marks.set(); ... kernels ...; const auto end = marks.set(); fence; marks.seconds(begin, end)
/// On a GPU a mark is an event, recorded when the kernels before it are done. On a host, where a kernel is done when
/// its call returns, a mark is the time of the call.
class DeviceMarks {
 public:
  DeviceMarks();
  ~DeviceMarks();
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  /// A new mark behind all work on the stream. Throws Error(internal) on a CUDA error.
  std::size_t set();
  /// Call after a fence. Throws Error(internal) on a CUDA error.
  [[nodiscard]] double seconds(std::size_t from, std::size_t to) const;

 private:
  struct Moments;
  std::unique_ptr<Moments> moments_;
};

}  // namespace kozero
