// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// random.cpp: keys of random streams, and ranges of a parameter's initial values.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include <kozero/core/portable_math.hpp>
#include <kozero/core/random.hpp>

namespace kozero {
namespace {

/// A bijective mixer of 64 bits (Stafford's variant 13 of the MurmurHash3 finalizer).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Elements 2 * pair and 2 * pair + 1 of a standard normal stream.
struct TwoNormals {
  double even, odd;
};

TwoNormals normals_at(std::uint64_t key, std::uint64_t pair) {
  const Words4 words = philox(key, counter_of(pair));
  // Two uniforms of 53 bits; the first in (0, 1], so that its logarithm is finite.
  const auto wide = [&](int i) { return (static_cast<std::uint64_t>(words.x[i]) << 32 | words.x[i + 1]) >> 11; };
  const double u = (static_cast<double>(wide(0)) + 1.0) * 0x1p-53;
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(wide(2)) * 0x1p-53);
  const double radius = std::sqrt(-2.0 * portable_log(u));
  const SinCos turn = portable_sin_cos(angle);
  return {radius * turn.cos, radius * turn.sin};
}

/// Elements [first, first + out.extent(0)) of the stream times `deviation`. An odd `first` begins within a pair.
void fill_normal(std::uint64_t key, double deviation, std::int64_t first, const HostVector<float>& out) {
  const auto extent = static_cast<std::int64_t>(out.extent(0));
  Kokkos::parallel_for("kozero::fill_initial", Kokkos::RangePolicy<Host>(Host(), first / 2, (first + extent + 1) / 2),
                       [=](const std::int64_t pair) {
                         const TwoNormals values = normals_at(key, static_cast<std::uint64_t>(pair));
                         const std::int64_t i = 2 * pair - first;
                         if (i >= 0) out(i) = static_cast<float>(deviation * values.even);
                         if (i + 1 < extent) out(i + 1) = static_cast<float>(deviation * values.odd);
                       });
  Host().fence("kozero::fill_initial");
}

}  // namespace

std::uint64_t stream_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return mixed(hash ^ mixed(seed + 0x9E3779B97F4A7C15ULL));
}

double normal_at(std::uint64_t key, std::uint64_t index) {
  const TwoNormals values = normals_at(key, index / 2);
  return index % 2 == 0 ? values.even : values.odd;
}

std::uint64_t permuted(std::uint64_t key, std::uint64_t position, std::uint64_t extent) {
  if (extent <= 1) return position;
  const int half_bits = (std::bit_width(extent - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const Words4 words = philox(key, counter_of(right, round));
      const std::uint64_t next = left ^ ((static_cast<std::uint64_t>(words.x[1]) << 32 | words.x[0]) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= extent);  // Cycle walking: the walk stays a bijection of [0, extent).
  return value;
}

void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t first, HostVector<float> out) {
  if (parameter.initial == Initial::normal) {
    fill_normal(stream_key(seed, parameter.name), parameter.deviation, first, out);
  } else {
    Kokkos::deep_copy(Host(), out, parameter.initial == Initial::ones ? 1.0F : 0.0F);
  }
}

void fill_initial_unit(const ParameterTable& table, int unit, std::uint64_t seed, std::int64_t first,
                       HostVector<float> out) {
  std::fill(out.data(), out.data() + out.extent(0), 0.0F);
  for (const auto& row : table.rows_of(unit)) {
    const TensorPart part = row.part_in(first, static_cast<std::int64_t>(out.extent(0)));
    if (part.extent > 0) fill_initial(row, seed, part.first, slice(out, part.begin, part.extent));
  }
}

}  // namespace kozero
