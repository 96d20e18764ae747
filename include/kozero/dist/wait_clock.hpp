// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// wait_clock.hpp: how long a wait has lasted, and how a waiting rank spins, yields and sleeps.
//   waited = sum over looks of min(interval since the look before, 1 s)
// Time in which the process was suspended does not count.
#pragma once
#include <algorithm>
#include <chrono>
#include <thread>

namespace kozero::dist {

// How long a wait has lasted.
//   waited = sum over looks of min(interval since the look before, 1 s)
// A process that was suspended for an hour between two looks has waited one second more: suspension is not loss.
// Whoever waits must look at least once a second.

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

// How a rank waits: it spins briefly, then yields its core at each look, then sleeps between two looks. A
// thread beside the training sleeps at once.
//   Patience patience(timeout_s);  while (!done()) if (!patience.pause()) give_up();
// Time in which the process was suspended does not count (wait_clock.hpp).

enum class Waiting { yields, sleeps };

class Patience {
 public:
  explicit Patience(double seconds, Waiting waiting = Waiting::yields) : seconds_(seconds), waiting_(waiting) {}

  /// False once the time is over.
  bool pause() {
    if (++looks_ < kSpins) return true;
    if (looks_ == kSpins) clock_.restart();
    if (waiting_ == Waiting::yields && waited_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(waited_ / 1000.0, kShortest, kLongest)));
    }
    waited_ = clock_.look();
    return waited_ < seconds_;
  }
  [[nodiscard]] double waited() const { return waited_; }

 private:
  static constexpr int kSpins = 2000;        // some microseconds
  static constexpr double kYields = 0.1;     // seconds: a longer wait is no part of a training step at speed
  static constexpr double kShortest = 2e-4;  // of the sleeps, which last a thousandth of the wait
  static constexpr double kLongest = 5e-3;
  long long looks_ = 0;
  double seconds_;
  double waited_ = 0.0;
  Waiting waiting_;
  WaitClock clock_;
};

}  // namespace kozero::dist
