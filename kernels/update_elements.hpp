// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// update_elements.hpp: one pass of an optimizer over weights, which also leaves them in 16 bits where a network reads
// those.
//   update(i, decays) changes element i of master weights and state, and returns the new weight;  stored(i) = T(that)
// In f32 `stored` is the master itself, and not looked at. Elements that decay, that do not and that are frozen lie in runs,
// all of which one kernel passes over: a GPU's thread looks for its element's run, a host's block goes from run to run. Runs on
// `space`; returns without fencing.
#pragma once
#include <algorithm>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

/// Run r is the elements [end[r - 1], end[r]). No run at all: every element decays.
struct UpdateRuns {
  enum class Kind : std::uint8_t { decays, keeps, frozen };
  static constexpr int kMost = 16;
  int count = 0;
  std::int64_t end[kMost] = {};
  Kind kind[kMost] = {};

  void add(std::int64_t its_end, Kind its_kind) {
    end[count] = its_end;
    kind[count++] = its_kind;
  }
  /// The run of element i.
  [[nodiscard]] KOKKOS_FUNCTION int at(std::int64_t i) const {
    int run = 0;
    while (i >= end[run]) ++run;
    return run;
  }
};

/// The elements of block `block`, on a host.
template <class T, class Update>
struct UpdatedBlock {
  UpdateRuns runs;
  T* stored;
  Update update;
  std::int64_t extent;

  void operator()(std::int64_t block) const {
    std::int64_t first = block * kElementBlock;
    const std::int64_t end = std::min(first + kElementBlock, extent);
    for (int run = runs.at(first); first < end; ++run) {
      const std::int64_t behind = std::min(end, runs.end[run]);
      if (runs.kind[run] != UpdateRuns::Kind::frozen) {
        update_run(first, behind - first, runs.kind[run] == UpdateRuns::Kind::decays);
      }
      first = behind;
    }
  }

  void update_run(std::int64_t first, std::int64_t count, bool decays) const {
    const auto value = [first, decays, at = update](std::int64_t i) { return at(first + i, decays); };
    if constexpr (has_master<T>) {
      store_run(stored + first, count, value);
    } else {
      simd_loop(count, [value](std::int64_t i) { value(i); });
    }
  }
};

/// Element i, on a GPU.
template <class T, class Update>
struct UpdatedElement {
  UpdateRuns runs;
  T* stored;
  Update update;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const UpdateRuns::Kind kind = runs.kind[runs.at(i)];
    if (kind == UpdateRuns::Kind::frozen) return;
    const float updated = update(i, kind == UpdateRuns::Kind::decays);
    if constexpr (has_master<T>) stored[i] = static_cast<T>(updated);
  }
};

/// The runs together are `extent` elements.
template <class Space, class T, class Update>
void update_elements(const Space& space, const std::string& label, std::int64_t extent, UpdateRuns runs,
                     Vector<T> stored, const Update& update) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  if (runs.count == 0) runs.add(extent, UpdateRuns::Kind::decays);
  require(runs.end[runs.count - 1] == extent, label + ": the runs are not all of the weights");
  require(!has_master<T> || static_cast<std::int64_t>(stored.extent(0)) == extent,
          label + ": weights and rounded weights differ in extent");
  if (extent == 0) return;
  if constexpr (runs_on_host<Space>) {
    const std::int64_t blocks = (extent + kElementBlock - 1) / kElementBlock;
    Kokkos::parallel_for(label, Policy(space, 0, blocks), UpdatedBlock<T, Update>{runs, stored.data(), update, extent});
  } else {
    Kokkos::parallel_for(label, Policy(space, 0, extent), UpdatedElement<T, Update>{runs, stored.data(), update});
  }
}

}  // namespace kozero::kernels
