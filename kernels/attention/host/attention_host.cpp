// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_host.cpp: attention on the tile unit in use, and the blocks of each kind of lines.
#include <algorithm>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <kozero/core/precision.hpp>
#include "kernels/attention/host/attention_blocks.hpp"
#include "kernels/attention/host/attention_host.hpp"

namespace kozero::kernels {

const AttentionBlocks& attention_blocks(LineKind lines) {
#define KOZERO_BLOCKS(kind) kind::attention_blocks,
  constexpr const AttentionBlocks& (*kOf[])() = {KOZERO_FOR_LINES(KOZERO_BLOCKS)};
#undef KOZERO_BLOCKS
  return kOf[static_cast<int>(lines)]();
}

void choose_attention(Attention /*attention*/) {}  // the fastest algorithm repeats

template <class T>
std::string attention_by(const AttentionShape& /*shape*/) {
  return attention_unit<T>().name;
}

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  const TileUnit& unit = attention_unit<T>();
  return workspace_of_threads(
      std::max(attention_tiles_forward_scratch<T>(unit, shape), attention_tiles_backward_scratch<T>(unit, shape)));
}

template <class Space, class T>
void attention_forward(const Space& space, Matrix<T> y, Matrix<float> logsumexp, MatrixIn<T> qkv,
                       const AttentionShape& shape, Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_forward");
  attention_tiles_forward(space, attention_unit<T>(), y, logsumexp, qkv, shape, workspace);
}

template <class Space, class T>
void attention_backward(const Space& space, Matrix<T> dqkv, MatrixIn<T> dy, MatrixIn<T> y,
                        Matrix<const float> logsumexp, MatrixIn<T> qkv, const AttentionShape& shape,
                        Vector<float> workspace) {
  const Kokkos::Profiling::ScopedRegion region("kozero::attention_backward");
  attention_tiles_backward(space, attention_unit<T>(), dqkv, dy, y, logsumexp, qkv, shape, workspace);
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
