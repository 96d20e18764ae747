// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_arrays.hpp: arrays, counters and postings of collectives in memory shared by the ranks of a node.
//   own = arrays.add(bytes)   at(r, location_of(p))   rank r's array, mapped in this process
//   counter.publish(k)        counter.await(k)     spins, then sleeps on a futex until k is published
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <ctime>
#endif

#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/wait_clock.hpp>

namespace kozero::distributed {

/// The number of phases that a rank has published, in shared memory, and the wait of other ranks for the next phase.
///   publish(k)   earlier writes are visible to each rank that sees k
///   await(k)     spins, then sleeps until k is published; false after timeout_s (wait_clock.hpp)
/// With more ranks than cores, a yielding thread may keep its core until its time slice ends. So a waiter sleeps, and
/// publish() wakes sleepers. Linux's futex works between processes, std::atomic::wait does not; on other systems a
/// waiter yields.
class PhaseCounter {
 public:
  void publish(std::uint64_t phase) {
    phase_.store(phase);
    bell_.fetch_add(1);
    if (sleepers_.load() > 0) ring();
  }

  [[nodiscard]] bool is_published(std::uint64_t phase) const { return phase_.load(std::memory_order_acquire) >= phase; }

  [[nodiscard]] bool await(std::uint64_t phase, double timeout_s) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (is_published(phase)) return true;
    }
    WaitClock clock;
    while (!is_published(phase)) {
      if (clock.look(timeout_s) >= timeout_s) return false;
      sleep_before(phase, timeout_s);
    }
    return true;
  }

 private:
  static constexpr int kSpins = 20000;  // about ten microseconds

  /// Sleeps until the bell rings, at most 0.1 s and an eighth of the timeout; returns at once if `phase` is published.
  void sleep_before(std::uint64_t phase, double timeout_s) {
    sleepers_.fetch_add(1);
    const std::uint32_t heard = bell_.load();
    if (phase_.load() < phase) listen(heard, std::clamp(timeout_s / 8.0, 1e-3, 0.1));
    sleepers_.fetch_sub(1);
  }

#if defined(__linux__)
  void ring() { syscall(SYS_futex, &bell_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  void listen(std::uint32_t heard, double seconds) {
    const timespec longest{0, static_cast<long>(seconds * 1e9)};
    syscall(SYS_futex, &bell_, FUTEX_WAIT, heard, &longest, nullptr, 0);
  }
#else
  void ring() {}
  void listen(std::uint32_t, double) { std::this_thread::yield(); }
#endif

  std::atomic<std::uint64_t> phase_{0};
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free &&
                  sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t),
              "counters in shared memory");

/// Arrays in shared memory, and the address in this process of a peer's counterpart of an array.
///   own = arrays.add(bytes)      collective: every rank adds an array; extents may differ
///   at(r, location_of(p))           rank r's bytes, mapped in this process, at the location of p in this rank's array
/// Each array is a file in a tmpfs, whose pages are allocated at once: if the tmpfs is full, add() fails, and no later
/// access ends in a bus error. The file is unlinked as soon as all ranks have mapped it, so that no process leaves the
/// file behind. (MPI's shared windows do neither.)
class SharedArrays {
 public:
  /// A byte of an array; a location has the same numbers on every rank.
  struct Location {
    std::int64_t array = -1;  ///< -1: in no array
    std::int64_t offset = 0;
  };

  /// `comm`, whose ranks share a node, carries control traffic and outlives the object. `folder`: a tmpfs.
  SharedArrays(Communicator& comm, std::string folder) : comm_(comm), folder_(std::move(folder)) {}
  /// Unmaps this process's mappings; peers keep their own.
  ~SharedArrays();
  SharedArrays(const SharedArrays&) = delete;
  SharedArrays& operator=(const SharedArrays&) = delete;

  /// Collective. Returns zeros, aligned to a page. The location one past the last byte belongs to the array too.
  /// Returns nullptr on all ranks if one of them found no room.
  void* add(std::int64_t bytes);
  /// Removes the array that was added last.
  void remove_last();

  [[nodiscard]] Location location_of(const void* pointer) const;
  [[nodiscard]] char* at(int rank, Location location) const;
  /// Total bytes of this rank's arrays.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Mapping {
    char* begin = nullptr;
    std::int64_t bytes = 0;
  };
  struct Array {
    std::int64_t bytes = 0;  // of this rank's array
    std::vector<Mapping> of_rank;
  };

  [[nodiscard]] bool map_all(const std::vector<std::string>& files, const std::vector<std::int64_t>& rooms,
                             Array& array) const;
  static void unmap(Array& array);

  Communicator& comm_;
  std::string folder_;
  std::vector<Array> arrays_;
};

/// One rank's posting for one collective, in shared memory.
///   posted: `location` has this rank's input      read: this rank has read the other ranks' inputs
/// Postings form a ring of CommunicatorOptions::under_way: a posting is reused once all ranks have read it.
/// Counters hold `ticket + 1` and lie in separate cache lines.
struct alignas(64) Posting {
  PhaseCounter posted;
  SharedArrays::Location location;
  alignas(64) PhaseCounter read;
};

}  // namespace kozero::distributed
