// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// wait_clock.hpp: how long a wait has lasted, and how a waiting rank spins, yields and sleeps.
//   waited = sum over looks of min(interval since the look before, 1 s)
// Time during which the process was suspended does not count.
#pragma once
#include <algorithm>
#include <chrono>
#include <thread>

namespace kozero::dist {

// How long a wait has lasted.
//   waited = sum over looks of min(interval since the look before, 1 s)
// A process that is suspended for an hour between two looks has waited only one second more, so that suspension does
// not count as the loss of a rank. The waiting thread must look at least once a second.

class WaitClock {
 public:
  /// Seconds since the look before, or since the start, at most kLongest.
  double interval() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return std::min(seconds, kLongest);
  }
  /// Adds the interval since the last look and returns the seconds waited so far.
  double look() { return waited_ += interval(); }
  void restart() { *this = WaitClock(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLongest = 1.0;
  Clock::time_point last_ = Clock::now();
  double waited_ = 0.0;
};

// How a rank waits: it spins briefly, then yields its core at each look, then sleeps between looks. A thread that runs
// beside the training (Waiting::sleeps) sleeps right after spinning.
//   Patience patience(timeout_s);  while (!done()) if (!patience.pause()) give_up();
// Time during which the process was suspended does not count.

enum class Waiting { yields, sleeps };

class Patience {
 public:
  explicit Patience(double seconds, Waiting waiting = Waiting::yields) : seconds_(seconds), waiting_(waiting) {}

  /// Returns false once the time is over.
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
  static constexpr double kYields = 0.1;     // seconds: waits in a normal training step are shorter
  static constexpr double kShortest = 2e-4;  // seconds of a sleep, which lasts a thousandth of the wait
  static constexpr double kLongest = 5e-3;
  long long looks_ = 0;
  double seconds_;
  double waited_ = 0.0;
  Waiting waiting_;
  WaitClock clock_;
};

}  // namespace kozero::dist
