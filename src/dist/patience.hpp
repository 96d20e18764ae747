// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// patience.hpp: how a rank waits: it spins briefly, then gives its core away at each look, until the time is over. A
// thread beside the training sleeps between two looks.
//   Patience patience(timeout_s);  while (!done()) if (!patience.pause()) give_up();
#pragma once
#include <chrono>
#include <thread>

namespace kozero::dist {

enum class Waiting { yields, sleeps };

class Patience {
 public:
  explicit Patience(double seconds, Waiting waiting = Waiting::yields) : seconds_(seconds), waiting_(waiting) {}

  /// False once the time is over.
  bool pause() {
    if (++looks_ < kSpins) return true;
    if (looks_ == kSpins) start_ = Clock::now();
    if (waiting_ == Waiting::yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
    return std::chrono::duration<double>(Clock::now() - start_).count() < seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 2000;  // some microseconds
  static constexpr std::chrono::microseconds kSleep{200};
  long long looks_ = 0;
  double seconds_;
  Waiting waiting_;
  Clock::time_point start_;
};

}  // namespace kozero::dist
