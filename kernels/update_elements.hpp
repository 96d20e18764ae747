// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// update_elements.hpp: one pass of an optimizer over weights, which also leaves them in 16 bits where a network reads
// those.
//   update(i) changes element i of master weights and state, and returns the new weight;  rounded(i) =
//   Bfloat16(update(i))
// `rounded` has the weights' extent, or none: then nothing is rounded. Runs on `space`; returns without fencing.
#pragma once
#include <string>

#include <kozero/core/bfloat16.hpp>
#include <kozero/core/error.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class Space, class Update>
void update_elements(const Space& space, const std::string& label, std::int64_t extent, Vector<Bfloat16> rounded,
                     const Update& update) {
  if (rounded.extent(0) == 0) {
    for_each_element(space, label, extent, update);
    return;
  }
  require(static_cast<std::int64_t>(rounded.extent(0)) == extent,
          label + ": weights and rounded weights differ in extent");
  assign_elements(space, label, rounded, update);
}

}  // namespace kozero::kernels
