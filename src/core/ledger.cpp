// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// ledger.cpp: allocation on large pages, zeroed by the threads that compute on it; sums by category.
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/core/ledger.hpp>

namespace kozero {
namespace {

constexpr std::int64_t kWord = sizeof(std::uint64_t);

/// Asks for 2 MiB pages under host memory, for fewer TLB misses in matrix products and long passes. If the kernel
/// refuses, only the speed changes. Blocks smaller than `kLarge` share their pages with others.
void ask_for_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  if (!kHostIsDevice || bytes < kLarge) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + static_cast<std::uintptr_t>(bytes)) / page * page;
  static_cast<void>(madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE));
#endif
}

/// Zeroes memory on the threads that will compute on it, in the static schedule of the kernels.
void first_touch(const Vector<std::uint64_t>& words) {
  const Device space;
  // Cuda's own index has 32 bits.
  const Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>> all(space, 0,
                                                                         static_cast<std::int64_t>(words.extent(0)));
  Kokkos::parallel_for(
      "kozero::first_touch", all, KOKKOS_LAMBDA(const std::int64_t i) { words(i) = 0; });
  space.fence("kozero::first_touch");
}

}  // namespace

MemoryLedger::~MemoryLedger() {
  for (void* memory : owned_) Kokkos::kokkos_free<DeviceMemory>(memory);
}

void MemoryLedger::book(Memory category, const std::string& label, std::int64_t bytes) {
  require(bytes >= 0, "MemoryLedger: negative extent for " + label);
  if (bytes > 0) lines_.push_back(Line{category, label, bytes});
}

std::int64_t MemoryLedger::bytes(Memory category) const {
  std::int64_t sum = 0;
  for (const auto& line : lines_) sum += line.category == category ? line.bytes : 0;
  return sum;
}

std::int64_t MemoryLedger::total() const {
  std::int64_t sum = 0;
  for (const auto& line : lines_) sum += line.category == Memory::disk ? 0 : line.bytes;
  return sum;
}

void* MemoryLedger::take_bytes(Memory category, const std::string& label, std::int64_t bytes, MemorySource* source) {
  using Kind = MemorySource::Kind;
  const Kind kind = source == nullptr ? Kind::device : source->kind();
  if (kind == Kind::disk) category = Memory::disk;
  if (kind == Kind::host) category = Memory::staging;
  book(category, label, bytes);
  if (plans_only()) return nullptr;
  const std::int64_t words = (bytes + 7) / 8;
  void* memory = source == nullptr ? nullptr : source->share(label, words * kWord);
  if (memory == nullptr && bytes > 0) {
    memory = allocate(category, label, words);
    owned_.push_back(memory);
  }
  if (memory == nullptr || kind == Kind::disk) return memory;
  ask_for_large_pages(memory, bytes);
  first_touch(Vector<std::uint64_t>(static_cast<std::uint64_t*>(memory), static_cast<std::size_t>(words)));
  return memory;
}

void* MemoryLedger::allocate(Memory category, const std::string& label, std::int64_t words) {
  try {
    return Kokkos::kokkos_malloc<DeviceMemory>(label, static_cast<std::size_t>(words * kWord));
  } catch (const std::exception&) {
    throw Error(Failure::internal, "out of memory on host " + host_name() + ": " + std::to_string(words * kWord) +
                                       " bytes for " + std::string(kMemoryNames[static_cast<std::size_t>(category)]) +
                                       " (" + label + ") after " + std::to_string(total() - words * kWord) +
                                       " bytes; use fewer ranks per host, or raise its limits; `kozero plan` shows "
                                       "what each part needs");
  }
}

}  // namespace kozero
