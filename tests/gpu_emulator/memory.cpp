// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory.cpp: allocations of the device's address range, their labels, and what happens if the host touches them.
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>

#include "report.hpp"

namespace kozero::gpu_emulator {
namespace {

constexpr std::uint64_t kGranule = 256;
constexpr std::uint64_t kPage = 4096;

struct Allocation {
  std::uint64_t bytes;
  Kind kind;
  bool freed = false;
  std::string label;
};

void reserve(Address at, std::uint64_t bytes, int protection) {
  void* const wanted = reinterpret_cast<void*>(at);
  const void* got =
      mmap(wanted, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != wanted)
    stop("the address range at " + hex(at) + " cannot be reserved: a limit of virtual memory (ulimit -v)?");
}

struct sigaction before;

void host_fault(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<Address>(info->si_addr);
  if (in_device(at)) stop("host code accesses device memory: " + describe(at, 1));
  sigaction(SIGSEGV, &before, nullptr);  // the access is repeated
}

/// All allocations by address. Freed allocations stay, for messages.
class Heap {
 public:
  Heap() {
    reserve(kDeviceBase, kArenaBytes, PROT_NONE);
    reserve(kDeviceBase + kAlias, kArenaBytes, PROT_READ | PROT_WRITE);
    reserve(kPinnedBase, kArenaBytes, PROT_READ | PROT_WRITE);
    reserve(shadow(kDeviceBase), kArenaBytes, PROT_READ | PROT_WRITE);
    reserve(shadow(kPinnedBase), kArenaBytes, PROT_READ | PROT_WRITE);
    reserve(kCellBase, kCellRatio * kArenaBytes, PROT_READ | PROT_WRITE);
    watch_host();
  }

  Address allocate(std::uint64_t bytes, Kind kind) {
    const std::lock_guard lock(mutex_);
    const bool on_device = kind == Kind::device || kind == Kind::variable;
    const auto device_bytes = static_cast<std::uint64_t>(options().memory_mib) << 20;
    if (on_device && (bytes > device_bytes || used_ + bytes > device_bytes)) return 0;
    std::uint64_t& next = on_device ? next_device_ : next_pinned_;
    const std::uint64_t room = (bytes + 2 * kGranule - 1) / (2 * kGranule) * 2 * kGranule + 2 * kGranule;
    if (next + room > kArenaBytes) stop("256 GiB were allocated in all; the emulator uses no address twice");
    const Address begin = (on_device ? kDeviceBase : kPinnedBase) + next;
    next += room;
    // The emulator does not see the host's writes to pinned memory. Variables of a module are zero by default.
    std::memset(shadow_of(begin), kind == Kind::device ? kAddressable : kInitialized, bytes);
    if (kind == Kind::device) std::memset(bytes_at(begin), 0xA5, bytes);
    if (on_device) used_ += bytes;
    all_[begin] = {bytes, kind, false, ""};
    return begin;
  }

  bool release(Address begin) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(begin);
    if (at == all_.end() || at->second.freed) return false;
    Allocation& gone = at->second;
    gone.freed = true;
    if (in_device(begin)) used_ -= gone.bytes;
    std::memset(shadow_of(begin), 0, gone.bytes);
    give_back(shadow(begin), gone.bytes);
    give_back(reinterpret_cast<Address>(bytes_at(begin)), gone.bytes);
    if (in_device(begin)) give_back(kCellBase + kCellRatio * (begin - kDeviceBase), kCellRatio * gone.bytes);
    return true;
  }

  void label(Address begin, const std::string& name) {
    const std::lock_guard lock(mutex_);
    // Kokkos puts a header of 128 bytes before each of its allocations.
    if (Named* at = nearest(begin); at != nullptr && begin - at->first < kGranule) at->second.label = name;
  }

  Pointed find(Address at) {
    const std::lock_guard lock(mutex_);
    const Named* found = nearest(at);
    if (found == nullptr || found->second.freed || at - found->first >= std::max<std::uint64_t>(found->second.bytes, 1))
      return {};
    return {true, found->first, found->second.bytes, found->second.kind};
  }

  std::string describe(Address at, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::string text = std::to_string(bytes) + (bytes == 1 ? " byte at " : " bytes at ") + hex(at);
    const Named* found = nearest(at);
    if (found == nullptr) return text + ", in no allocation";
    const auto& [begin, of] = *found;
    const std::uint64_t offset = at - begin;
    const std::string name =
        (of.freed ? "the freed \"" : "\"") + of.label + "\" of " + std::to_string(of.bytes) + " bytes";
    if (offset < of.bytes) return text + ", byte " + std::to_string(offset) + " of " + name;
    return text + ", " + std::to_string(offset - of.bytes) + " bytes after the end of " + name;
  }

  std::uint64_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }

  void report_leaks() {
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, of] : all_) {
      if (of.freed || of.kind == Kind::variable) continue;
      finding("leak", hex(begin), std::to_string(of.bytes) + " bytes of \"" + of.label + "\" are not freed at the end");
    }
  }

 private:
  using Named = std::pair<const Address, Allocation>;

  static Address shadow(Address at) { return reinterpret_cast<Address>(shadow_of(at)); }

  static void give_back(Address begin, std::uint64_t bytes) {
    const Address first = (begin + kPage - 1) / kPage * kPage, end = (begin + bytes) / kPage * kPage;
    if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

  Named* nearest(Address at) {
    auto found = all_.upper_bound(at);
    if (found == all_.begin()) return nullptr;
    --found;
    return (found->first < kPinnedBase) == (at < kPinnedBase) ? &*found : nullptr;
  }

  std::mutex mutex_;
  std::map<Address, Allocation> all_;
  std::uint64_t next_device_ = kGranule, next_pinned_ = kGranule, used_ = 0;
};

Heap& heap() {
  static auto* const heap = new Heap;  // lives as long as the process
  return *heap;
}

}  // namespace

void watch_host() {
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  if (now.sa_sigaction == host_fault) return;
  before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = host_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGSEGV, &ours, nullptr);
}

Address allocate(std::uint64_t bytes, Kind kind) { return heap().allocate(bytes, kind); }
bool release(Address begin) { return heap().release(begin); }
void set_label(Address begin, const std::string& label) { heap().label(begin, label); }
Pointed allocation_at(Address at) { return heap().find(at); }
std::string describe(Address at, std::uint64_t bytes) { return heap().describe(at, bytes); }
std::uint64_t bytes_in_use() { return heap().used(); }
void report_leaks() { heap().report_leaks(); }

void check_range(Address at, std::uint64_t bytes, bool writes, const char* operation) {
  if (bytes == 0 || (!in_device(at) && !in_pinned(at))) return;
  std::uint8_t* const state = shadow_of(at);
  const auto* const bad = std::find(state, state + bytes, std::uint8_t{0});
  if (bad != state + bytes) {
    const auto first = static_cast<std::uint64_t>(bad - state);
    stop(std::string(operation) + " of " + std::to_string(bytes) + " bytes at " + hex(at) +
         " leaves its allocation: " + describe(at + first, 1));
  }
  if (writes) {
    std::memset(state, kInitialized, bytes);
  }
}

}  // namespace kozero::gpu_emulator
