// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_phase_counter.cpp: a waiting thread sees earlier writes, wakes up soon, times out, and leaves its core to
// others.
#include <sys/resource.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/host/shared_arrays.hpp"

namespace kozero::distributed {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

TEST_CASE("a published phase and those before it are there at once, a later one is not", "[phase]") {
  PhaseCounter counter;
  counter.publish(3);
  CHECK(counter.await(1, 0.0));
  CHECK(counter.await(3, 0.0));
  CHECK_FALSE(counter.await(4, 0.0));
}

TEST_CASE("a wait ends when its time is over", "[phase]") {
  PhaseCounter counter;
  const auto start = Clock::now();
  CHECK_FALSE(counter.await(1, 0.15));
  CHECK(seconds_since(start) >= 0.15);
}

/// A clock set by the test.
struct SetClock {
  using duration = std::chrono::duration<double>;
  using time_point = std::chrono::time_point<SetClock, duration>;
  static inline double seconds = 0.0;
  static time_point now() { return time_point(duration(seconds)); }
};

TEST_CASE("a suspension counts as at most one second and an eighth of the timeout", "[phase]") {
  for (const auto& [timeout_s, longest_s] : {std::pair(600.0, 1.0), {8.0, 1.0}, {1.0, 0.125}, {0.1, 0.0125}}) {
    SetClock::seconds = 0.0;
    BasicWaitClock<SetClock> clock;
    SetClock::seconds = 3600.0;
    CHECK(clock.look(timeout_s) == longest_s);
    SetClock::seconds += longest_s / 2.0;
    CHECK(std::abs(clock.look(timeout_s) - 1.5 * longest_s) < 1e-9);
    SetClock::seconds += longest_s / 2.0;
    CHECK(std::abs(clock.interval(timeout_s) - longest_s / 2.0) < 1e-9);
  }
}

TEST_CASE("a sleeper is woken by publishing, long before it would look again by itself", "[phase]") {
  double soonest = 1.0;
  for (int attempt = 0; attempt < 10 && soonest > 0.03; ++attempt) {
    PhaseCounter counter;
    int payload = 0;
    Clock::time_point woken;
    std::thread sleeper([&] {
      if (counter.await(1, 10.0) && payload == 7) woken = Clock::now();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    payload = 7;
    const auto published = Clock::now();
    counter.publish(1);
    sleeper.join();
    REQUIRE(woken >= published);
    soonest = std::min(soonest, std::chrono::duration<double>(woken - published).count());
  }
  CHECK(soonest <= 0.03);
}

/// Seconds of processor time that this thread has used.
double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST_CASE("a rank that waits for long sleeps most of the time", "[phase]") {
  const double before = cpu_seconds();
  Patience patience(0.2);
  while (patience.pause()) {
  }
  CHECK(patience.waited() >= 0.2);
  CHECK(cpu_seconds() - before < 0.05);
}

TEST_CASE("on shared cores a rank sleeps in short waits too", "[phase]") {
  Patience::set_cores_are_shared(true);
  const double before = cpu_seconds();
  double waited = 0.0;
  for (int wait = 0; wait < 50; ++wait) {
    Patience patience(2e-3);
    while (patience.pause()) {
    }
    waited += patience.waited();
  }
  Patience::set_cores_are_shared(false);
  CHECK(waited >= 0.1);
  CHECK(cpu_seconds() - before < 0.4 * waited);
}

}  // namespace
}  // namespace kozero::distributed
