// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// random.hpp: counter-based random numbers, and the initial values of parameters drawn from these numbers.
//   Philox4x32-10: (counter (4 words), key (2 words)) -> 4 words, a bijection of the counter for each key.
//   normal: deviation * z_i,  z_i = normal_at(stream_key(seed, name), i);   zeros: 0;   ones: 1
// A 64-bit key (hash of seed and purpose) selects a stream, a 128-bit counter an element. There is no state: a value
// depends on its key and its counter alone. So every owner fills its shard without communication, and the bits are the
// same on any rank count, thread count and device.
// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <string_view>

#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>

namespace kozero {

struct Words4 {
  std::uint32_t x[4];
};

/// Ten rounds of Philox on `counter` under `key`.
KOKKOS_INLINE_FUNCTION Words4 philox(std::uint64_t key, Words4 counter) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * counter.x[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * counter.x[2];
    counter = Words4{{static_cast<std::uint32_t>(p1 >> 32) ^ counter.x[1] ^ k0, static_cast<std::uint32_t>(p1),
                      static_cast<std::uint32_t>(p0 >> 32) ^ counter.x[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

/// The counter whose low half is `low` and whose high half is `high`.
KOKKOS_INLINE_FUNCTION Words4 counter_of(std::uint64_t low, std::uint64_t high = 0) {
  return Words4{{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                 static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
}

/// A float in [0, 1) with 24 random bits.
KOKKOS_INLINE_FUNCTION float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

/// A 64-bit key for a stream: FNV-1a of the name, mixed with the seed. Distinct names give unrelated streams.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name);

/// Element `index` of a standard normal stream (Box-Muller in double on the host; the same bits everywhere).
double normal_at(std::uint64_t key, std::uint64_t index);

/// A seeded bijection of [0, extent): position -> element, in O(1) and without a table (Feistel network with cycle
/// walking over the next power of four). Used to shuffle an epoch.
std::uint64_t permuted(std::uint64_t key, std::uint64_t position, std::uint64_t extent);

/// Writes elements [first, first + out.extent(0)) of the parameter, in its published order, on all host threads.
void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t first, HostVector<float> out);

/// Writes the elements [first, first + out.extent(0)) of a unit: its tensors' initial values, pads zero.
void fill_initial_unit(const ParameterTable& table, int unit, std::uint64_t seed, std::int64_t first,
                       HostVector<float> out);

}  // namespace kozero
