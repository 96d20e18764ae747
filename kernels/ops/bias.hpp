// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bias.hpp: the gradient of a bias that was added to every row.
//   dbias(c) += sum over n of dy(n, c)          dbias (C)   dy (N, C)
// The workspace has row_reduction_workspace(C) floats. Runs on `space`; returns without fencing.
#pragma once
#include "kernels/launch/row_blocks.hpp"

namespace kozero::kernels {

template <class Space, class T>
static void bias_backward(const Space& space, Vector<float> dbias, Matrix<const T> dy, Vector<float> workspace) {
  require(dbias.extent(0) == dy.extent(1), "bias_backward: dbias (C) and dy (N, C) differ in C");
  add_row_sums<1>(
      space, "kozero::bias_backward", {dbias}, rows_of(dy),
      KOKKOS_LAMBDA(std::int64_t /*n*/, float upper) { return RowTerms<1>{upper}; }, workspace);
}

}  // namespace kozero::kernels
