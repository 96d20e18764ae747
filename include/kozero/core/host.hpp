// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host.hpp: the CPUs that this process may use, and copies that bypass the caches.
// The header includes no Kokkos, since sources compiled for the host alone include it.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kozero {

// The CPUs that this process may run on, and which of them are one core.

/// CPU numbers, ascending.
using CpuSet = std::vector<int>;

/// What the launcher and the control group left to this process. Where OpenMP has bound the calling thread to a place
/// since (OMP_PROC_BIND=true binds the first thread to the first place, in every rank alike), all of its places.
CpuSet allowed_cpus();

/// The same CPUs, those of one core together, in the order of their first.
std::vector<CpuSet> cores_of(const CpuSet& cpus);

/// "0-3,6".
std::string as_ranges(const CpuSet& cpus);

/// "AMD EPYC 9B14 96-Core Processor"; "CPU" where the system does not tell.
std::string cpu_name();

/// Lets the calling thread run wherever this rank's threads may: it inherits the one core that its maker is bound to.
void run_on_any_cpu();

/// Whether the calling thread now runs on these CPUs alone.
bool bind_this_thread(const CpuSet& cpus);

}  // namespace kozero

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see streaming stores
#define KOZERO_STREAMS
#include <immintrin.h>
#endif

namespace kozero {

// Writes past the caches, for what is read much later or by another core: fetching the lines they go
// to would be a third of the traffic. memcpy does so itself only where one call moves more than the last cache holds.

inline constexpr std::int64_t kCacheLine = 64;  ///< bytes
#if defined(KOZERO_STREAMS) && defined(__AVX512F__)
inline constexpr std::int64_t kStreamAlignment = 64;  ///< bytes: alignment of a streamed line
#else
inline constexpr std::int64_t kStreamAlignment = 16;
#endif

/// Whether stream_line may write to `to`.
inline bool can_stream_to(const void* to) { return reinterpret_cast<std::uintptr_t>(to) % kStreamAlignment == 0; }

/// Copies one line of kCacheLine bytes, in one store where there is such a one; `to` is aligned to kStreamAlignment.
/// end_stream() follows the last one.
inline void stream_line(void* to, const void* from) {
#if defined(KOZERO_STREAMS) && defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(KOZERO_STREAMS)
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
#else
  std::memcpy(to, from, static_cast<std::size_t>(kCacheLine));
#endif
}

/// Orders streamed lines before whatever the caller publishes next.
inline void end_stream() {
#if defined(KOZERO_STREAMS)
  _mm_sfence();
#endif
}

/// memcpy of disjoint ranges.
inline void stream_copy(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::int64_t lines = can_stream_to(to) ? bytes / kCacheLine * kCacheLine : 0;
  for (std::int64_t i = 0; i < lines; i += kCacheLine) stream_line(out + i, in + i);
  end_stream();
  std::memcpy(out + lines, in + lines, static_cast<std::size_t>(bytes - lines));
}

}  // namespace kozero
