// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// one_process.cpp: replaces parts of src/distributed in a simulation, whose ranks share one process and one core.
//   copies and sums   move no bytes: simulated time passes instead
//   large arrays      array k of every rank is at the same address, so that they need the memory of one rank's; their
//                     values mean nothing. Stacks, small arrays and SMPI remain: a process of 4,096 ranks had 4.2 GiB
//   sleeps            last on the simulated clock
//   liveness          without heartbeats and watchdog: their messages and threads are not simulated (see also
//                     tests/support/without_liveness.cpp)
// Small arrays, such as the postings of a node's ranks, are real, and a node's ranks see each other's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "machine.hpp"
#include "src/distributed/back_ends.hpp"
#include "src/distributed/chunks.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/launched_ranks.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

void sum_in_order(const float* const* /*sources*/, std::int64_t num_sources, std::int64_t extent, float* /*out*/) {
  scale::pass_bytes((num_sources + 1) * extent * static_cast<std::int64_t>(sizeof(float)));
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (to != from) scale::pass_bytes(2 * bytes);
}

Heartbeat::Heartbeat(MPI_Comm /*world*/) {}
Heartbeat::~Heartbeat() = default;
std::string Heartbeat::end() { return ""; }
Watchdog::Watchdog() = default;
Watchdog::~Watchdog() = default;
void show_arrival() {}
std::string ranks_not_arrived() { return ""; }
double comm_timeout() { return 600.0; }
void set_comm_timeout(double /*seconds*/) {}

std::string nccl_unavailable_reason(const Ranks& /*ranks*/) { return "a simulation has no GPUs"; }
Vector<float> received_addends(int /*size*/, MemoryLedger& /*ledger*/, const CommunicatorOptions& /*options*/) {
  return {};
}
std::unique_ptr<Communicator> make_nccl_communicator(const Ranks& /*ranks*/, MemoryLedger& /*ledger*/,
                                                     const CommunicatorOptions& /*options*/) {
  return nullptr;
}

}  // namespace kozero::distributed

namespace {

constexpr std::size_t kLarge = std::size_t{64} << 10;
constexpr std::size_t kRoom = std::size_t{16} << 30;  // addresses for the large arrays of a rank

/// The next array of at least kLarge bytes of this rank, or outside of the ranks.
class Arena {
 public:
  void* take(std::size_t bytes) {
    const auto rank = static_cast<std::size_t>(kozero::scale::simulated_rank() + 1);
    if (taken_.size() <= rank) taken_.resize(rank + 1);
    constexpr std::size_t kPage = 4096;
    const std::size_t first = taken_[rank];
    taken_[rank] += (bytes + kPage - 1) / kPage * kPage + kPage;
    if (taken_[rank] > kRoom) std::abort();
    return begin_ + first;
  }
  [[nodiscard]] bool has(const void* pointer) const {
    const auto* byte = static_cast<const char*>(pointer);
    return byte >= begin_ && byte < begin_ + kRoom;
  }

 private:
  char* begin_ = static_cast<char*>(
      mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  std::vector<std::size_t> taken_;
};

Arena& arena() {
  static auto* const kArena = new Arena;
  return *kArena;
}

struct Shared {
  void* begin = nullptr;
  int users = 0;
};
std::map<std::pair<dev_t, ino_t>, Shared> shared;

}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  if (bytes >= kLarge) return arena().take(bytes);
  const auto multiple = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple);
}

void operator delete(void* memory, std::align_val_t /*alignment*/, const std::nothrow_t& /*tag*/) noexcept {
  if (!arena().has(memory)) std::free(memory);
}

extern "C" {
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);  // NOLINT
int __real_munmap(void* begin, std::size_t bytes);                                                  // NOLINT
int __real_posix_fallocate(int file, off_t offset, off_t bytes);                                    // NOLINT

void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {  // NOLINT
  struct stat status {};
  if ((flags & MAP_SHARED) == 0 || fstat(file, &status) != 0) {
    return __real_mmap(at, bytes, protection, flags, file, offset);
  }
  if (bytes >= kLarge) return arena().take(bytes);
  Shared& mapping = shared[{status.st_dev, status.st_ino}];
  if (mapping.users++ == 0) mapping.begin = __real_mmap(at, bytes, protection, flags, file, offset);
  return mapping.begin;
}

int __wrap_munmap(void* begin, std::size_t bytes) {  // NOLINT
  if (arena().has(begin)) return 0;
  for (auto mapping = shared.begin(); mapping != shared.end(); ++mapping) {
    if (mapping->second.begin != begin) continue;
    if (--mapping->second.users > 0) return 0;
    shared.erase(mapping);
    break;
  }
  return __real_munmap(begin, bytes);
}

int __wrap_posix_fallocate(int file, off_t offset, off_t bytes) {  // NOLINT
  return static_cast<std::size_t>(bytes) >= kLarge ? 0 : __real_posix_fallocate(file, offset, bytes);
}

int __wrap_nanosleep(const timespec* time, timespec* /*left*/) {  // NOLINT
  kozero::scale::pass(static_cast<double>(time->tv_sec) + 1e-9 * static_cast<double>(time->tv_nsec));
  return 0;
}
}
