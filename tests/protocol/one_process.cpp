// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// one_process.cpp: replaces what src/distributed has once per process, for ranks that are threads of one process.
// Reports of positions, heartbeat and watchdog do nothing, since their locks would order the ranks. A shared file is
// mapped once for all ranks, since ThreadSanitizer takes two mappings of one page for different memory. (The linker
// sends mmap and munmap here.)
#include <sys/mman.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <utility>

#include <distributed/liveness/heartbeat.hpp>
#include <distributed/liveness/watchdog.hpp>

#include "thread_mpi.hpp"

namespace kozero::distributed {

void Whereabouts::started(Event /*event*/) {}
std::string Whereabouts::newest(std::size_t /*count*/) const { return ""; }
Whereabouts::Wait::Wait(Role role) : role_(static_cast<std::size_t>(role)) {}
Whereabouts::Wait::~Wait() = default;
Whereabouts& whereabouts() {
  static Whereabouts here;
  return here;
}

std::atomic<Heartbeat*>& Heartbeat::current() {
  static std::atomic<Heartbeat*> none = nullptr;
  return none;
}
int known_rank() { return 0; }

std::string Heartbeat::vain(Role /*role*/) const { return ""; }
std::string Heartbeat::awaited(Role /*role*/) const { return "another rank"; }
std::string Heartbeat::working_rank(Role /*role*/) const { return "another rank"; }
std::string Heartbeat::name_of(int rank) const { return "rank " + std::to_string(rank); }
std::vector<std::string> Heartbeat::positions_of_ranks(std::size_t /*most*/) const { return {}; }

BlockingCall::BlockingCall(const char* /*name*/) {}
BlockingCall::~BlockingCall() = default;

}  // namespace kozero::distributed

namespace {

struct Shared {
  void* begin = nullptr;
  int users = 0;
};
std::mutex mutex;
std::map<std::pair<dev_t, ino_t>, Shared> shared;

}  // namespace

extern "C" {
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);  // NOLINT
int __real_munmap(void* begin, std::size_t bytes);                                                  // NOLINT

void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {  // NOLINT
  struct stat status {};
  if ((flags & MAP_SHARED) == 0 || fstat(file, &status) != 0) {
    return __real_mmap(at, bytes, protection, flags, file, offset);
  }
  const kozero::test::Unseen unseen;
  const std::lock_guard lock(mutex);
  Shared& mapping = shared[{status.st_dev, status.st_ino}];
  if (mapping.users++ == 0) mapping.begin = __real_mmap(at, bytes, protection, flags, file, offset);
  return mapping.begin;
}

int __wrap_munmap(void* begin, std::size_t bytes) {  // NOLINT
  const kozero::test::Unseen unseen;
  const std::lock_guard lock(mutex);
  for (auto mapping = shared.begin(); mapping != shared.end(); ++mapping) {
    if (mapping->second.begin != begin) continue;
    if (--mapping->second.users > 0) return 0;
    shared.erase(mapping);
    break;
  }
  return __real_munmap(begin, bytes);
}
}
