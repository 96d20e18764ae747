// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host.hpp: the CPUs that this process may use, stacks for signal handlers, and copies that bypass the caches.
// stream_line and stream_copy bypass the caches, for data read much later or by another core. A normal store first
// reads the cache line that it writes, a third of a copy's traffic. memcpy bypasses the caches only if one call exceeds
// the last-level cache. The header includes no Kokkos, since sources compiled for the host alone include it.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kozero {

/// CPU numbers, ascending.
using CpuSet = std::vector<int>;

/// The CPUs that the launcher and the control group allow to this process. If its threads have since been bound, the
/// CPUs of all of them; if by OpenMP (OMP_PROC_BIND=true binds the first thread of every rank to the first place), of
/// all places.
CpuSet allowed_cpus();

/// Where Linux describes its CPUs; tests pass a folder of their own.
inline constexpr const char* kSystemDevices = "/sys/devices/system";

/// The same CPUs grouped by core. The cores are ordered by NUMA domain, then by their first CPU, since many machines
/// number their CPUs across the domains in turn.
std::vector<CpuSet> cores_of(const CpuSet& cpus, const std::string& devices = kSystemDevices);

/// The cores that these CPUs belong to, ascending, each by the number of its first CPU, allowed or not.
std::vector<int> core_numbers(const CpuSet& cpus, const std::string& devices = kSystemDevices);

/// The NUMA domains of these CPUs, ascending; empty if the system does not report them.
std::vector<int> numa_domains_of(const CpuSet& cpus, const std::string& devices = kSystemDevices);

/// "0-3,6" for ascending numbers.
std::string as_ranges(const std::vector<int>& numbers);

/// The numbers in such a text; empty if it is none.
std::vector<int> numbers_in_ranges(const std::string& text);

/// "unknown" if the system does not report a name.
std::string host_name();

/// "AMD EPYC 9B14 96-Core Processor"; "CPU" if the system does not report a name.
std::string cpu_name();

/// Lets the calling thread run on all CPUs of this rank. A new thread inherits the core to which its creator is bound.
void run_on_any_cpu();

/// Binds the calling thread to these CPUs. Returns whether that succeeded.
bool bind_this_thread(const CpuSet& cpus);

/// Gives the calling thread a stack for signal handlers (SA_ONSTACK), unless it has one. The generated code of a
/// library may point the stack pointer into the heap, where a handler's frame would overwrite data or find no room.
void use_signal_stack();

}  // namespace kozero

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see streaming stores
#define KOZERO_STREAMS
#include <immintrin.h>
#endif

namespace kozero {

inline constexpr std::int64_t kCacheLine = 64;  ///< bytes
#if defined(KOZERO_STREAMS) && defined(__AVX512F__)
inline constexpr std::int64_t kStreamAlignment = 64;  ///< bytes: alignment of a streamed line
#else
inline constexpr std::int64_t kStreamAlignment = 16;
#endif

/// Whether stream_line may write to `to`.
inline bool can_stream_to(const void* to) { return reinterpret_cast<std::uintptr_t>(to) % kStreamAlignment == 0; }

/// Copies one line of kCacheLine bytes, with AVX-512 in one store; `to` is aligned to kStreamAlignment. Call
/// end_stream() after the last line.
inline void stream_line(void* to, const void* from) {
#if defined(KOZERO_STREAMS) && defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(KOZERO_STREAMS)
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
#else
  for (int i : {0, 16, 32, 48}) std::memcpy(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, 16);
#endif
}

/// Orders streamed lines before whatever the caller publishes next.
inline void end_stream() {
#if defined(KOZERO_STREAMS)
  _mm_sfence();
#endif
}

/// memcpy of disjoint ranges by streaming stores if `to` is aligned for them.
inline void stream_copy(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::int64_t lines = can_stream_to(to) ? bytes / kCacheLine * kCacheLine : 0;
  for (std::int64_t i = 0; i < lines; i += kCacheLine) stream_line(out + i, in + i);
  end_stream();
  std::memcpy(out + lines, in + lines, static_cast<std::size_t>(bytes - lines));
}

}  // namespace kozero
