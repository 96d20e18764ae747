// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// phase_counter.hpp: how many phases a rank has published, in shared memory, and how the others wait for the next one.
//   publish(k)   all before it is visible to whoever has seen k
//   await(k)     spins, then sleeps until k is published; false once the time is over (wait_clock.hpp)
// Where more ranks run than there are cores, yielding hands a core over no sooner than its time slice ends: so a waiter
// goes to sleep, and publishing rings a bell when somebody sleeps. Linux's futex works between processes,
// std::atomic::wait does not; elsewhere a waiter yields.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

#include <kozero/dist/wait_clock.hpp>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <ctime>
#endif

namespace kozero::dist {

class PhaseCounter {
 public:
  void publish(std::uint64_t phase) {
    phase_.store(phase);
    bell_.fetch_add(1);
    if (sleepers_.load() > 0) ring();
  }

  [[nodiscard]] bool await(std::uint64_t phase, double timeout_s) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (is_published(phase)) return true;
    }
    WaitClock clock;
    while (!is_published(phase)) {
      if (clock.look() >= timeout_s) return false;
      sleep_before(phase);
    }
    return true;
  }

 private:
  static constexpr int kSpins = 20000;  // some ten microseconds

  [[nodiscard]] bool is_published(std::uint64_t phase) const { return phase_.load(std::memory_order_acquire) >= phase; }

  /// Until the bell rings or a tenth of a second has passed; not at all where `phase` is there already.
  void sleep_before(std::uint64_t phase) {
    sleepers_.fetch_add(1);
    const std::uint32_t heard = bell_.load();
    if (phase_.load() < phase) listen(heard);
    sleepers_.fetch_sub(1);
  }

#if defined(__linux__)
  void ring() { syscall(SYS_futex, &bell_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  void listen(std::uint32_t heard) {
    const timespec tenth{0, 100'000'000};
    syscall(SYS_futex, &bell_, FUTEX_WAIT, heard, &tenth, nullptr, 0);
  }
#else
  void ring() {}
  void listen(std::uint32_t) { std::this_thread::yield(); }
#endif

  std::atomic<std::uint64_t> phase_{0};
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free &&
                  sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t),
              "counters in shared memory");

}  // namespace kozero::dist
