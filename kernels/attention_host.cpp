// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_host.cpp: attention.hpp on the host: the processor's fastest tile unit, or strips on oneDNN where none is
// used.
#include <algorithm>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <kozero/core/precision.hpp>
#include <kozero/kernels/attention_strips.hpp>
#include <kozero/kernels/attention_tasks.hpp>
#include <kozero/kernels/attention_tiles.hpp>
#include <kozero/kernels/matmul.hpp>

namespace kozero::kernels {

void choose_attention(Attention /*attention*/) {}  // the fastest repeats

template <class T>
std::string attention_by(const AttentionShape& /*shape*/) {
  return multiplier<T>();
}

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  if (tile_unit_in_use<T>() == nullptr) return workspace_of_threads(attention_strips_scratch<T>(shape));
  return workspace_of_threads(
      std::max(attention_tiles_forward_scratch<T>(shape), attention_tiles_backward_scratch<T>(shape)));
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_forward");
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) {
    attention_strips_forward(space, y, logsumexp, qkv, shape, workspace);
  } else {
    attention_tiles_forward(space, *unit, y, logsumexp, qkv, shape, workspace);
  }
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_backward");
  const TileUnit* const unit = tile_unit_in_use<T>();
  if (unit == nullptr) {
    attention_strips_backward(space, dqkv, dy, y, logsumexp, qkv, shape, workspace);
  } else {
    attention_tiles_backward(space, *unit, dqkv, dy, y, logsumexp, qkv, shape, workspace);
  }
}

#define KOZERO_INSTANTIATE(T)                                                                              \
  template std::string attention_by<T>(const AttentionShape&);                                             \
  template std::int64_t attention_workspace<T>(const AttentionShape&);                                     \
  template void attention_forward<Device, T>(const Device&, Matrix<T>, Matrix<float>, Matrix<const T>,     \
                                             const AttentionShape&, Vector<float>);                        \
  template void attention_backward<Device, T>(const Device&, Matrix<T>, Matrix<const T>, Matrix<const T>,  \
                                              Matrix<const float>, Matrix<const T>, const AttentionShape&, \
                                              Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
