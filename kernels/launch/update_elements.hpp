// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// update_elements.hpp: one pass of an optimizer over weights, which also writes 16-bit weights if the network reads
// those.
//   {weight(i), state(i), ...} = update({weight(i), state(i), ...}, gradient(i), decays);  stored(i) = T(weight(i))
// In f32 `stored` is the weights themselves and is not written. Elements with and without weight decay form runs, and
// one kernel updates all runs: a GPU thread updates a pack (packs.hpp) and finds its run, a host block iterates over
// runs. Runs on `space`; returns without fencing.
#pragma once
#include <algorithm>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include "kernels/launch/for_each.hpp"

namespace kozero::kernels {

/// Run r has the elements [end[r - 1], end[r]). Without runs, every element decays.
struct UpdateRuns {
  static constexpr int kMost = 16;
  int count = 0;
  std::int64_t end[kMost] = {};
  bool decays[kMost] = {};

  void add(std::int64_t run_end, bool run_decays) {
    end[count] = run_end;
    decays[count++] = run_decays;
  }
  /// The run of element i.
  [[nodiscard]] KOKKOS_FUNCTION int at(std::int64_t i) const {
    int run = 0;
    while (i >= end[run]) ++run;
    return run;
  }
};

/// An element's weight, followed by its optimizer states.
template <int kArrays>
using Element = Kokkos::Array<float, kArrays>;

template <class T, int kArrays, class F>
struct ElementUpdate {
  static constexpr int kCount = kPackOf<T>;
  UpdateRuns runs;
  T* stored;
  Kokkos::Array<float*, kArrays> arrays;
  const float* gradient;
  F update;
  std::int64_t extent;
  bool packed;  ///< all arrays are aligned

  /// The elements of block `block`, on a host.
  void update_block(std::int64_t block) const {
    std::int64_t first = block * kElementBlock;
    const std::int64_t end = std::min(first + kElementBlock, extent);
    for (int run = runs.at(first); first < end; ++run) {
      const std::int64_t behind = std::min(end, runs.end[run]);
      update_run(first, behind - first, runs.decays[run]);
      first = behind;
    }
  }

  void update_run(std::int64_t first, std::int64_t count, bool decays) const {
    const auto weight = [first, decays, f = update, all = arrays, grad = gradient](std::int64_t i) {
      Element<kArrays> element;
      for (int k = 0; k < kArrays; ++k) element[k] = all[k][first + i];
      element = f(element, grad[first + i], decays);
      for (int k = 0; k < kArrays; ++k) all[k][first + i] = element[k];
      return element[0];
    };
    if constexpr (has_master<T>) {
      store_run(stored + first, count, weight);
    } else {
      simd_loop(count, [weight](std::int64_t i) { weight(i); });
    }
  }

  /// kElements elements, on a GPU.
  template <int kElements>
  KOKKOS_FUNCTION void update_pack(std::int64_t first, bool decays) const {
    Pack<kElements> packs[kArrays];
    KOZERO_UNROLLED
    for (int k = 0; k < kArrays; ++k) packs[k] = load_pack<kElements>(arrays[k] + first);
    const Pack<kElements> slope = load_pack<kElements>(gradient + first);
    KOZERO_UNROLLED
    for (int i = 0; i < kElements; ++i) {
      Element<kArrays> element;
      for (int k = 0; k < kArrays; ++k) element[k] = packs[k].x[i];
      element = update(element, slope.x[i], decays);
      for (int k = 0; k < kArrays; ++k) packs[k].x[i] = element[k];
    }
    KOZERO_UNROLLED
    for (int k = 0; k < kArrays; ++k) store_pack(arrays[k] + first, packs[k]);
    if constexpr (has_master<T>) store_pack(stored + first, packs[0]);
  }

  /// The elements of pack `pack`, on a GPU: vectorized if they belong to one run.
  KOKKOS_FUNCTION void update_part(std::int64_t pack) const {
    const std::int64_t first = pack * kCount;
    const int run = runs.at(first);
    if (packed && first + kCount <= runs.end[run]) {
      return update_pack<kCount>(first, runs.decays[run]);
    }
    for (std::int64_t i = first; i < first + kCount && i < extent; ++i) {
      update_pack<1>(i, runs.decays[runs.at(i)]);
    }
  }

  KOKKOS_FUNCTION void operator()(std::int64_t part) const {
    KOKKOS_IF_ON_HOST((update_block(part);))
    KOKKOS_IF_ON_DEVICE((update_part(part);))
  }
};

/// The arrays of an update; the runs cover them.
template <class T, int kArrays>
struct UpdatedArrays {
  Kokkos::Array<Vector<float>, kArrays> weights_and_state;
  Vector<T> stored;
  Vector<const float> gradient;
  UpdateRuns runs;
};

template <class Space, class T, int kArrays, class F>
void update_elements(const Space& space, const std::string& label, const UpdatedArrays<T, kArrays>& arrays,
                     const F& update) {
  using Policy = Kokkos::RangePolicy<Space, Kokkos::IndexType<std::int64_t>>;
  using Update = ElementUpdate<T, kArrays, F>;
  const auto extent = static_cast<std::int64_t>(arrays.gradient.extent(0));
  Update all{arrays.runs, arrays.stored.data(), {}, arrays.gradient.data(), update, extent, false};
  bool fit = !has_master<T> || static_cast<std::int64_t>(arrays.stored.extent(0)) == extent;
  all.packed = is_aligned(all.stored, all.gradient);
  for (int k = 0; k < kArrays; ++k) {
    fit = fit && static_cast<std::int64_t>(arrays.weights_and_state[k].extent(0)) == extent;
    all.arrays[k] = arrays.weights_and_state[k].data();
    all.packed = all.packed && is_aligned(all.arrays[k]);
  }
  require(fit, label + ": weights, state and gradient differ in extent");
  if (all.runs.count == 0) all.runs.add(extent, true);
  require(all.runs.end[all.runs.count - 1] == extent, label + ": the runs are not all of the weights");
  if (extent == 0) return;
  const std::int64_t part = runs_on_host<Space> ? kElementBlock : Update::kCount;
  Kokkos::parallel_for(label, Policy(space, 0, (extent + part - 1) / part), all);
}

}  // namespace kozero::kernels
