// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// update_elements.hpp: one pass of an optimizer over weights, which also leaves them in 16 bits where a network reads
// those.
//   update(i) changes element i of master weights and state, and returns the new weight;  stored(i) = T(update(i))
// In f32 `stored` is the master itself, and not looked at. Runs on `space`; returns without fencing.
#pragma once
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/precision.hpp>
#include <kozero/kernels/elements.hpp>

namespace kozero::kernels {

template <class Space, class T, class Update>
void update_elements(const Space& space, const std::string& label, std::int64_t extent, Vector<T> stored,
                     const Update& update) {
  if constexpr (has_master<T>) {
    require(static_cast<std::int64_t>(stored.extent(0)) == extent,
            label + ": weights and rounded weights differ in extent");
    assign_elements(space, label, stored, update);
  } else {
    for_each_element(space, label, extent, update);
  }
}

}  // namespace kozero::kernels
