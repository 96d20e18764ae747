// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sublayer.hpp: half of a transformer block: one branch of the residual stream.
//   y = x + dropout(branch(norm(x)))          x, y (N, C)
// A block is a list of sublayers whose tensors lie in one unit. Each object belongs to one layer and keeps that layer's
// activations; what lives only during a call is carved from the Pass's scratch. For generation there is a second pair,
// reserve_cache and decode, which keeps keys and values and no activation.
#pragma once
#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/model/model.hpp>
#include <kozero/model/pass.hpp>

namespace kozero::model {

template <class Scalar>
class Sublayer {
 public:
  virtual ~Sublayer() = default;

  /// Takes the activations of at most `batch` sequences of `positions` tokens.
  virtual void reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions) = 0;
  /// Bytes of scratch that one call needs at that size.
  [[nodiscard]] virtual std::int64_t scratch_bytes(std::int64_t batch, std::int64_t positions) const = 0;

  /// Overwrites y. `weights` is the block's unit.
  virtual void forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, Vector<const Scalar> weights) = 0;

  /// Takes what decode keeps from call to call: keys and values, where the sublayer has such.
  virtual void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) = 0;
  /// Bytes of scratch that one call of decode needs.
  [[nodiscard]] virtual std::int64_t decode_scratch_bytes(const CacheExtents& extents) const = 0;

  /// forward() of new rows of cached sequences, one a "sequence" of the pass.
  virtual void decode(const Pass& pass, const kernels::RowPlaces& places, Matrix<Scalar> y, Matrix<const Scalar> x,
                      Vector<const Scalar> weights) = 0;

  /// dx holds dy on entry and the gradient of x on return; adds into `gradient`. x is forward's.
  virtual void backward(const Pass& pass, Matrix<Scalar> dx, const UnitGradient& gradient, Matrix<const Scalar> x,
                        Vector<const Scalar> weights) = 0;
};

}  // namespace kozero::model
