// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// kernel_case.cpp: the rings of memory from which calls take uncached operands, and derived sizes of a network.
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include "src/bench/kernel_case.hpp"

namespace kozero::bench {
namespace {

constexpr std::int64_t kSmallest = std::int64_t{128} << 20;  // several times a last-level cache
constexpr std::int64_t kOperandAlignment = 64;               // bytes
constexpr std::int64_t kSkew = 5 * kOperandAlignment;  // no two operands of a call begin at the same offset in a page

std::int64_t ring_bytes(std::int64_t call_bytes) { return std::max(kSmallest, 2 * call_bytes); }

/// Fills with noise in [0, 1). Its 16-bit halves are noise in [0, 1) as bf16, and in [0, 2) as fp16.
void fill_with_noise(const Vector<float>& values) {
  Kokkos::parallel_for(
      "kozero::bench::operands",
      Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, static_cast<std::int64_t>(values.extent(0))),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const float noise = uniform_of(philox(3, counter_of(static_cast<std::uint64_t>(i))).x[0]);
        const auto high = Kokkos::bit_cast<std::uint32_t>(noise) >> 16;
        values(static_cast<std::size_t>(i)) = Kokkos::bit_cast<float>(high << 16 | high);
      });
  Device().fence("kozero::bench::operands");
}

}  // namespace

OperandRing::OperandRing(MemoryLedger& ledger, const std::string& label, std::int64_t bytes)
    : memory_(ledger.take<std::byte>(Memory::workspace, label, bytes)) {}

std::byte* OperandRing::next(std::int64_t bytes) {
  const std::int64_t whole = (bytes + kOperandAlignment - 1) / kOperandAlignment * kOperandAlignment + kSkew;
  const auto capacity = static_cast<std::int64_t>(memory_.extent(0));
  if (at_ + whole > capacity) {
    in_call_ += capacity - at_;
    at_ = 0;
  }
  in_call_ += whole;
  require(in_call_ <= capacity, "bench kernels: the operands of a call overlap");
  std::byte* const first = memory_.data() + at_;
  at_ += whole;
  return first;
}

OperandRings::OperandRings(MemoryLedger& ledger, std::int64_t call_bytes)
    : inputs(ledger, "bench inputs", ring_bytes(call_bytes)), outputs(ledger, "bench outputs", ring_bytes(call_bytes)) {
  auto noise = inputs.take<float>((ring_bytes(call_bytes) - kSkew) / kOperandAlignment * kOperandAlignment /
                                  static_cast<std::int64_t>(sizeof(float)));
  fill_with_noise(noise);
  inputs.begin_call();
}

}  // namespace kozero::bench
