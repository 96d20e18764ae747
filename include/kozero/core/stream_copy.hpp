// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stream_copy.hpp: writes past the caches, for what is read much later or by another core: fetching the lines they go
// to would be a third of the traffic. memcpy does so itself only where one call moves more than the last cache holds.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see streaming stores
#define KOZERO_STREAMS
#include <immintrin.h>
#endif

namespace kozero {

inline constexpr std::int64_t kCacheLine = 64;  ///< bytes
#if defined(KOZERO_STREAMS) && defined(__AVX512F__)
inline constexpr std::int64_t kStreamBorder = 64;  ///< bytes: where a streamed line may begin
#else
inline constexpr std::int64_t kStreamBorder = 16;
#endif

/// Whether stream_line may write to `to`.
inline bool can_stream_to(const void* to) { return reinterpret_cast<std::uintptr_t>(to) % kStreamBorder == 0; }

/// Copies one line of kCacheLine bytes, in one store where there is such a one; `to` is on a kStreamBorder.
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
