// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_profile.hpp: when each kernel of this process ran. Kokkos calls back around each kernel, copy, region and
// wait. The profile sets time stamps on the kernels' stream and adds no wait, so steps run as they normally do.
//   KernelProfile profile;  ... Kokkos starts ...  profile.start(); steps; profile.stop()
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/events.hpp>

namespace kozero::run {

class KernelProfile {
 public:
  /// A kernel or a copy; or a region with all kernels in it, under the region's name.
  struct Interval {
    std::size_t name;       ///< index into Record::names
    double begin_s, end_s;  ///< since the record's begin
  };
  /// The host's waits for the device under one name.
  struct Waits {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0.0;
  };
  struct Record {
    std::vector<std::string> names;
    std::vector<Interval> intervals;  ///< in order; they do not overlap
    std::size_t lost = 0;             ///< intervals beyond the most
    Event::Clock::time_point begin;
    std::vector<Waits> waits;
    std::int64_t allocations = 0;
  };

  /// Construct before Kokkos is initialized; otherwise Kokkos waits around each kernel. At most one exists at a time.
  KernelProfile();
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  /// Waits for the device. From now on the kernels of this thread are recorded, at most `most` of them.
  void start(std::size_t most = std::size_t{1} << 40);
  /// Waits for the device.
  [[nodiscard]] Record stop();

 private:
  struct Marked {
    std::size_t name, begin, end;  // marks
  };
  struct Calls;

  [[nodiscard]] bool records() const { return recording_ && std::this_thread::get_id() == thread_; }
  void begin(const char* name);
  void end();
  std::size_t index_of(const std::string& name);
  void begin_wait(const char* of);
  void end_wait();

  DeviceMarks marks_;
  std::vector<Marked> marked_;
  Record record_;
  std::size_t first_ = 0, most_ = 0;
  std::thread::id thread_;
  std::atomic<bool> recording_ = false;  // threads of other work look at it
  bool skips_ = false;                   // the outermost region is beyond the most
  int depth_ = 0;
  int waiting_ = 0;
  std::size_t wait_ = 0;  // index in record_.waits of the one under way
};

}  // namespace kozero::run
