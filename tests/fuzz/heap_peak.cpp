// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heap_peak.cpp: replaces operator new and delete by versions that count.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "heap_peak.hpp"

namespace {

std::atomic<std::int64_t> in_use{0};
std::atomic<std::int64_t> most{0};
std::atomic<std::int64_t> at_reset{0};

void count(std::int64_t bytes) {
  const std::int64_t now = in_use += bytes;
  std::int64_t seen = most;
  while (now > seen && !most.compare_exchange_weak(seen, now)) {
  }
}

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  count(static_cast<std::int64_t>(malloc_usable_size(memory)));
  return memory;
}

void returned(void* memory) noexcept {
  if (memory != nullptr) count(-static_cast<std::int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(std::size_t bytes) { return counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(
      std::aligned_alloc(static_cast<std::size_t>(alignment),
                         (bytes + static_cast<std::size_t>(alignment)) & ~(static_cast<std::size_t>(alignment) - 1)));
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { returned(memory); }
void operator delete(void* memory) noexcept { returned(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { returned(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { returned(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { returned(memory); }
// NOLINTEND(misc-new-delete-overloads)

namespace kozero::tests {

void reset_heap_peak() {
  at_reset = in_use.load();
  most = in_use.load();
}

std::int64_t heap_peak() { return most - at_reset; }

}  // namespace kozero::tests
