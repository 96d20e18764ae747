// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_phase_counter.cpp: who waits sees what was published, is woken soon, and gives up in time.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "src/dist/shared_arrays.hpp"

namespace kozero::dist {
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

TEST_CASE("time in which nobody looked counts as one second at most", "[phase]") {
  WaitClock clock;
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const double waited = clock.look();
  CHECK(waited == 1.0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(clock.look() >= 1.05);
  CHECK(clock.interval() < 1.0);
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

}  // namespace
}  // namespace kozero::dist
