// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_step.hpp: a profile of the kernels of a training step: which run, how long, and how long none runs.
// Kokkos calls back around each kernel, copy, region and wait. The profile sets time stamps on the kernels' stream and
// adds no wait, so it measures the step as it normally runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/core/device.hpp>

namespace kozero::bench {

class KernelProfile {
 public:
  struct Kernel {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0.0;
  };
  struct Result {
    std::vector<Kernel> kernels;  ///< the longest first
    double in_kernels = 0.0;      ///< seconds
    double span = 0.0;            ///< seconds from the first kernel's begin to the last one's end
    std::int64_t waits = 0;       ///< times the host waited for the device
    double waited = 0.0;          ///< seconds
    std::int64_t allocations = 0;

    [[nodiscard]] double idle_share() const { return 1.0 - in_kernels / span; }
  };

  /// Before Kokkos is up, or it puts a wait around each kernel. One at a time.
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  void start();
  /// Waits for the device. There was a kernel since start().
  [[nodiscard]] Result stop();

 private:
  struct Interval {
    std::size_t name, begin, end;
  };
  struct Calls;

  void begin(const std::string& name);
  void end();
  std::size_t index_of(const std::string& name);

  DeviceMarks marks_;
  std::vector<std::string> names_;
  std::vector<Interval> intervals_;
  bool recording_ = false;
  int depth_ = 0;
  std::int64_t waits_ = 0;
  int waiting_ = 0;
  double waited_ = 0.0;
  std::int64_t allocations_ = 0;
};

}  // namespace kozero::bench
