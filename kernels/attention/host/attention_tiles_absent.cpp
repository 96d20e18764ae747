// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// attention_tiles_absent.cpp: attention_host.hpp's tiles for architectures without a tile unit: never called.
#include <kozero/core/precision.hpp>
#include "kernels/attention/host/attention_host.hpp"

namespace kozero::kernels {
namespace {

constexpr const char* kAbsent = "attention: this processor has no tile unit";

}  // namespace

template <class T>
std::int64_t attention_tiles_forward_scratch(const AttentionShape&) {
  return 0;
}
template <class T>
std::int64_t attention_tiles_backward_scratch(const AttentionShape&) {
  return 0;
}

template <class Space, class T>
void attention_tiles_forward(const Space&, const TileUnit&, Matrix<T>, Matrix<float>, MatrixIn<T>,
                             const AttentionShape&, Vector<float>) {
  throw Error(Failure::internal, kAbsent);
}

template <class Space, class T>
void attention_tiles_backward(const Space&, const TileUnit&, Matrix<T>, MatrixIn<T>, MatrixIn<T>, Matrix<const float>,
                              MatrixIn<T>, const AttentionShape&, Vector<float>) {
  throw Error(Failure::internal, kAbsent);
}

#define KOZERO_INSTANTIATE(T)                                                                                   \
  template std::int64_t attention_tiles_forward_scratch<T>(const AttentionShape&);                              \
  template void attention_tiles_forward<Device, T>(const Device&, const TileUnit&, Matrix<T>, Matrix<float>,    \
                                                   Matrix<const T>, const AttentionShape&, Vector<float>);      \
  template std::int64_t attention_tiles_backward_scratch<T>(const AttentionShape&);                             \
  template void attention_tiles_backward<Device, T>(const Device&, const TileUnit&, Matrix<T>, Matrix<const T>, \
                                                    Matrix<const T>, Matrix<const float>, Matrix<const T>,      \
                                                    const AttentionShape&, Vector<float>);
KOZERO_FOR_STORED_TYPES(KOZERO_INSTANTIATE)

}  // namespace kozero::kernels
