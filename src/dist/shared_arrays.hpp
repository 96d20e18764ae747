// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_arrays.hpp: arrays in shared memory, counters that ranks publish and await there, and the postings of a
// collective.
//   own = arrays.add(bytes)   at(r, location_of(p))   rank r's bytes, mapped in this process
//   counter.publish(k)        counter.await(k)     spins, then sleeps on a futex until k is published
#pragma once
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

#include <kozero/dist/communicator.hpp>
#include <kozero/dist/wait_clock.hpp>

namespace kozero::dist {

// How many phases a rank has published, in shared memory, and how the others wait for the next one.
//   publish(k)   all before it is visible to whoever has seen k
//   await(k)     spins, then sleeps until k is published; false once the time is over (wait_clock.hpp)
// Where more ranks run than there are cores, yielding hands a core over no sooner than its time slice ends: so a waiter
// goes to sleep, and publishing rings a bell when somebody sleeps. Linux's futex works between processes,
// std::atomic::wait does not; elsewhere a waiter yields.

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
      if (clock.look() >= timeout_s) return false;
      sleep_before(phase);
    }
    return true;
  }

 private:
  static constexpr int kSpins = 20000;  // some ten microseconds

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

// Arrays in shared memory, and where a peer's counterpart of an array lies in this process.
//   own = arrays.add(bytes)      collective: every rank has such an array then, each of an extent of its own
//   at(r, location_of(p))           in this process, rank r's bytes at the location that p has in this rank's array
// Each array is a file of a folder in memory whose pages are taken at once: where the folder is overbooked add() finds
// out, instead of a bus error at the first touch. The file's name is removed as soon as all ranks have mapped it, so
// that no process leaves it behind. (MPI's shared windows do neither.)

class SharedArrays {
 public:
  /// A byte of an array: the same numbers name it on every rank.
  struct Location {
    std::int64_t array = -1;  ///< -1: in none
    std::int64_t offset = 0;
  };

  /// `comm`, whose ranks share a node, carries control traffic and outlives this. `folder`: a tmpfs.
  SharedArrays(Communicator& comm, std::string folder) : comm_(comm), folder_(std::move(folder)) {}
  /// Unmaps: peers that still read have mappings of their own.
  ~SharedArrays();
  SharedArrays(const SharedArrays&) = delete;
  SharedArrays& operator=(const SharedArrays&) = delete;

  /// Collective. Zeros, aligned to a page; a location behind its last byte belongs to it too. nullptr on all ranks
  /// where one of them found no room.
  void* add(std::int64_t bytes);
  /// Gives back the array that was added last.
  void remove_last();

  [[nodiscard]] Location location_of(const void* pointer) const;
  [[nodiscard]] char* at(int rank, Location location) const;
  /// Of this rank's arrays.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Mapping {
    char* begin = nullptr;
    std::int64_t bytes = 0;
  };
  struct Array {
    std::int64_t bytes = 0;  // of this rank's
    std::vector<Mapping> of_rank;
  };

  [[nodiscard]] bool map_all(const std::vector<std::string>& files, const std::vector<std::int64_t>& rooms,
                             Array& array) const;
  static void unmap(Array& array);

  Communicator& comm_;
  std::string folder_;
  std::vector<Array> arrays_;
};

// What one rank tells the others of one collective, in shared memory.
//   post: `location` is where what it gives lies      read: it has read what the others gave
// Postings are a ring of CommunicatorOptions::under_way: a posting is used again once all ranks have read it.

/// Counters are `ticket + 1`; those that others wait on lie in lines of their own.
struct alignas(64) Posting {
  PhaseCounter posted;
  SharedArrays::Location location;
  alignas(64) PhaseCounter read;
};

}  // namespace kozero::dist
