// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// patience.hpp: how a rank waits: it spins briefly, then gives its core away at each look, until the time is over.
//   Patience patience(timeout_s);  while (!done()) if (!patience.pause()) give_up();
#pragma once
#include <chrono>
#include <thread>

namespace kozero::dist {

class Patience {
 public:
  explicit Patience(double seconds) : seconds_(seconds) {}

  /// False once the time is over.
  bool pause() {
    if (++looks_ < kSpins) return true;
    if (looks_ == kSpins) start_ = Clock::now();
    std::this_thread::yield();
    return std::chrono::duration<double>(Clock::now() - start_).count() < seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 2000;  // some microseconds
  long long looks_ = 0;
  double seconds_;
  Clock::time_point start_;
};

}  // namespace kozero::dist
