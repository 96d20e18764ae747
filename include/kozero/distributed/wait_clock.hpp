// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// wait_clock.hpp: how long a wait has lasted, and how a waiting rank spins, yields and sleeps. Time during which the
// process was suspended does not count.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace kozero::distributed {

/// How long a wait has lasted.
///   waited = sum over looks of min(interval since the look before, 1 s, timeout / 8)
/// If a process is suspended for an hour between two looks, that hour counts as 1 s, or as an eighth of the timeout if
/// that is shorter. So a suspension never counts as the loss of a rank. The waiting thread must look at least that
/// often; otherwise the wait lasts longer than the timeout. `Source`: std::chrono::steady_clock, or a clock that a test
/// sets.
template <class Source>
class BasicWaitClock {
 public:
  /// Seconds since the look before, or since the start, at most min(1 s, timeout_s / 8).
  double interval(double timeout_s) {
    const auto now = Source::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return std::min({seconds, kLongest, timeout_s / 8.0});
  }
  /// Adds the interval since the last look and returns the seconds waited so far.
  double look(double timeout_s) { return waited_ += interval(timeout_s); }
  void restart() { *this = BasicWaitClock(); }

 private:
  static constexpr double kLongest = 1.0;
  typename Source::time_point last_ = Source::now();
  double waited_ = 0.0;
};

using WaitClock = BasicWaitClock<std::chrono::steady_clock>;

enum class Waiting { yields, sleeps };

/// How a rank waits: it spins briefly, then yields its core at each look, then sleeps between looks. A thread that runs
/// beside the training (Waiting::sleeps) sleeps right after spinning. Where more ranks than cores share the cores, each
/// rank sleeps soon: Linux returns from most yields at once although other ranks are ready to run.
///   Patience patience(timeout_s);  while (!done()) if (!patience.pause()) give_up();
class Patience {
 public:
  explicit Patience(double seconds, Waiting waiting = Waiting::yields) : seconds_(seconds), waiting_(waiting) {}

  /// Sets for this process whether there are more ranks than cores on its cores.
  static void set_cores_are_shared(bool shared) { cores_are_shared_ = shared; }

  /// Returns false after the timeout.
  bool pause() {
    const bool shared = cores_are_shared_.load(std::memory_order_relaxed);
    const int spins = shared ? kSpinsOnShared : kSpins;
    if (++looks_ < spins) return true;
    if (looks_ == spins) clock_.restart();
    if (waiting_ == Waiting::yields && waited_ < (shared ? kYieldsOnShared : kYields)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(waited_ / 100.0, kShortest, kLongest)));
    }
    waited_ = clock_.look(seconds_);
    return waited_ < seconds_;
  }
  [[nodiscard]] double waited() const { return waited_; }

 private:
  static constexpr int kSpins = 2000;  // looks: some microseconds, or a millisecond if a look is a call of MPI
  static constexpr int kSpinsOnShared = 50;
  // Seconds. A rank that yields still keeps other programs from an idle core, so it soon sleeps.
  static constexpr double kYields = 2e-3;
  static constexpr double kYieldsOnShared = 1e-4;
  static constexpr double kShortest = 5e-5;  // of a sleep, which lasts a hundredth of the wait
  static constexpr double kLongest = 5e-3;
  static inline std::atomic<bool> cores_are_shared_{false};
  long long looks_ = 0;
  double seconds_;
  double waited_ = 0.0;
  Waiting waiting_;
  WaitClock clock_;
};

}  // namespace kozero::distributed
