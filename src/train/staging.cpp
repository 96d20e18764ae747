// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/core/stream_copy.hpp>
#include <kozero/train/staging.hpp>

namespace kozero::train {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements: what one thread copies at a time

/// Calls `visit(slice, first element of its copy)` for all slices in turn.
template <class Visit>
void for_each_slice(const std::vector<StateGroup>& groups, const Visit& visit) {
  std::int64_t first = 0;
  for (const auto& group : groups) {
    for (const auto& slice : group.slices) {
      visit(slice, first);
      first += static_cast<std::int64_t>(slice.values.extent(0));
    }
  }
}

/// `body(first, count)` for blocks of [0, extent), each on one of the host's threads, always the same one.
template <class Body>
void for_each_block(const char* label, std::int64_t extent, const Body& body) {
  const std::int64_t num_blocks = (extent + kBlock - 1) / kBlock;
  using Policy = Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(label, Policy(0, num_blocks),
                       [=](const std::int64_t b) { body(b * kBlock, std::min(kBlock, extent - b * kBlock)); });
}

void copy(float* to, const Vector<float>& from) {
  if constexpr (kHostIsDevice) {
    const float* source = from.data();
    for_each_block("kozero::train::capture", static_cast<std::int64_t>(from.extent(0)),
                   [=](std::int64_t first, std::int64_t count) {
                     stream_copy(to + first, source + first, count * static_cast<std::int64_t>(sizeof(float)));
                   });
  } else {
    Kokkos::deep_copy(HostVector<float>(to, from.extent(0)), from);
  }
}

[[noreturn]] void refuse(std::int64_t limit_mib, std::int64_t bytes) {
  throw Error(Failure::deck,
              "checkpoint.staging_mib = " + std::to_string(limit_mib) + ": a rank's share of the state needs " +
                  std::to_string((bytes + kMiB - 1) / kMiB) +
                  " MiB; accepted are that and more, or 0 for what it needs; " +
                  "checkpoint.async = false and more ranks need less",
              Error::Seen::by_all_ranks);
}

}  // namespace

Staging::Staging(std::vector<StateGroup> groups, std::int64_t limit_mib, MemoryLedger& ledger)
    : groups_(std::move(groups)) {
  std::int64_t extent = 0;
  for_each_slice(groups_, [&](const DeviceSlice& slice, std::int64_t) {
    require(slice.values.extent(0) % kAlignment == 0, "Staging: a slice does not end on a border");
    extent += static_cast<std::int64_t>(slice.values.extent(0));
  });
  bytes_ = extent * static_cast<std::int64_t>(sizeof(float));
  if (limit_mib > 0 && bytes_ > limit_mib * kMiB) refuse(limit_mib, bytes_);
  ledger.book(Memory::staging, "checkpoint staging", bytes_);
  if (ledger.plans_only() || extent == 0) return;
  memory_ = decltype(memory_)(Kokkos::view_alloc("kozero::train::staging", Kokkos::WithoutInitializing),
                              static_cast<std::size_t>(extent));
  float* memory = memory_.data();
  for_each_block("kozero::train::first_touch", extent,
                 [=](std::int64_t first, std::int64_t count) { std::fill_n(memory + first, count, 0.0F); });
}

void Staging::capture() {
  Device().fence("kozero::train::capture");
  for_each_slice(groups_,
                 [&](const DeviceSlice& slice, std::int64_t first) { copy(memory_.data() + first, slice.values); });
  Host().fence("kozero::train::capture");
}

std::vector<io::TensorGroup<const float>> Staging::groups() const {
  std::vector<io::TensorGroup<const float>> all;
  for (const auto& group : groups_) all.push_back({group.name, {}});
  std::int64_t first = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const auto& slice : groups_[i].slices) {
      const auto extent = slice.values.extent(0);
      all[i].slices.push_back({slice.unit, slice.begin, HostVector<const float>(memory_.data() + first, extent)});
      first += static_cast<std::int64_t>(extent);
    }
  }
  return all;
}

}  // namespace kozero::train
