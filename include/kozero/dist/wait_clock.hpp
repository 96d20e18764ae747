// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// wait_clock.hpp: how long a wait has lasted.
//   waited = sum over looks of min(interval since the look before, 1 s)
// A process that was suspended for an hour between two looks has waited one second more: suspension is not loss.
// Whoever waits must look at least once a second.
#pragma once
#include <algorithm>
#include <chrono>

namespace kozero::dist {

class WaitClock {
 public:
  /// Seconds since the look before, or since the start, at most kLongest.
  double interval() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return std::min(seconds, kLongest);
  }
  /// Looks: seconds waited by now.
  double look() { return waited_ += interval(); }
  void restart() { *this = WaitClock(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLongest = 1.0;
  Clock::time_point last_ = Clock::now();
  double waited_ = 0.0;
};

}  // namespace kozero::dist
