// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// layer.hpp: the inputs common to all layers (the batch's shape, scratch memory, parts of matrices) and the interface
// of a sublayer.
//   y = x + dropout(branch(norm(x)))          x, y (N, C),  N = batch * positions
// A transformer block is a list of sublayers. Their tensors are in one unit.
#pragma once
#include <cstddef>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/views.hpp>
#include <kozero/model/model.hpp>
#include <kozero/model/parameter_views.hpp>

namespace kozero::model {

/// The sequences of one pass through the network: N = batch * positions rows. Row n is position n % positions of
/// sequence n / positions. With documents, attention and positions are those of each document.
struct Pass {
  Device space;
  std::int64_t batch = 0;                  ///< B
  std::int64_t positions = 0;              ///< T
  Vector<const std::uint64_t> sample_ids;  ///< (B)
  Documents documents{};
  float dropout = 0.0F;          ///< 0 outside training
  float adapter_dropout = 0.0F;  ///< of the input of adapters; 0 outside training
  Vector<std::byte> scratch_memory;

  [[nodiscard]] std::int64_t num_rows() const { return batch * positions; }
  /// The whole scratch memory. Every layer uses it in turn and may overwrite what earlier layers left.
  [[nodiscard]] Scratch scratch() const { return Scratch(scratch_memory); }
};

/// Rows [first, first + count) of a row-major matrix, without a copy.
template <class T, class Memory>
Matrix<T, Memory> rows(const Matrix<T, Memory>& a, std::int64_t first, std::int64_t count) {
  return Matrix<T, Memory>(a.data() + first * static_cast<std::int64_t>(a.extent(1)), static_cast<std::size_t>(count),
                           a.extent(1));
}

/// All elements of a row-major matrix as one vector, without a copy.
template <class T, class Memory>
Vector<T, Memory> flat(const Matrix<T, Memory>& a) {
  return Vector<T, Memory>(a.data(), a.extent(0) * a.extent(1));
}

/// Half of a transformer block: one branch of the residual stream. Each object belongs to one layer and keeps that
/// layer's activations; temporaries are taken from the Pass's scratch. Generation uses reserve_cache and decode, which
/// keep keys and values and no activations. Sublayers of different blocks may share memory for activations; recompute
/// must then precede backward.
template <class Scalar>
class Sublayer {
 public:
  virtual ~Sublayer() = default;

  /// Takes activations for at most `batch` sequences of `positions` tokens. If `other`, the same sublayer of another
  /// block, is not nullptr, shares the activations of `other`. With `keeps_attention`, attention's result is not
  /// shared.
  virtual void reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions, const Sublayer* other,
                       bool keeps_attention) = 0;
  /// Bytes of scratch that one call needs for these extents.
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t batch, std::int64_t positions) const = 0;

  /// Overwrites y. `weights` has the tensors of the block's unit.
  virtual void forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                       const WeightViews<Scalar>& weights) = 0;

  /// Recomputes the activations that backward needs, after another block used the same memory: as forward(), but skips
  /// attention if its result is kept. Overwrites y; a y without rows is not computed.
  virtual void recompute(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                         const WeightViews<Scalar>& weights) = 0;

  /// Takes the cache that decode keeps between calls: keys and values, if the sublayer has any.
  virtual void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) = 0;
  /// Bytes of scratch that one call of decode needs.
  [[nodiscard]] virtual std::int64_t decode_scratch_bytes(const CacheExtents& extents) const = 0;

  /// forward() for new rows of cached sequences; each row is one "sequence" of the pass.
  virtual void decode(const Pass& pass, const kernels::RowPositions& row_positions, Matrix<Scalar> y,
                      Matrix<const Scalar> x, const WeightViews<Scalar>& weights) = 0;

  /// dx holds dy on entry and the gradient of x on return. Adds into the gradients of the tensors that train. x is
  /// forward's input.
  virtual void backward(const Pass& pass, Matrix<Scalar> dx, const GradientViews& gradients, Matrix<const Scalar> x,
                        const WeightViews<Scalar>& weights) = 0;
};

}  // namespace kozero::model
