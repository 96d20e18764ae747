// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// feed_forward.hpp: the feed-forward branch of a block.
//   hidden = norm(x) Wup + b        y = x + dropout(active Wdown + b)          active (N, F)
//   gelu:    active = gelu(hidden), tanh form           hidden (N, F)          Hendrycks, Gimpel 2016, arXiv:1606.08415
//   swiglu:  active = silu(gate) * up                   hidden = gate | up (N, 2F)       Shazeer 2020, arXiv:2002.05202
// Keeps norm(x), hidden and active.
#pragma once
#include <kozero/model/adapters.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/norm.hpp>

namespace kozero::model {

enum class Activation { gelu, swiglu };

template <class Scalar>
class FeedForward : public Sublayer<Scalar> {
 public:
  FeedForward(const Config& config, std::int64_t layer, Activation activation, Norm<Scalar> norm,
              AdaptedProjection<Scalar> up, AdaptedProjection<Scalar> down);

  void reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions, const Sublayer<Scalar>* other,
               bool keeps_attention) override;
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t batch, std::int64_t positions) const override;
  void forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, const WeightViews<Scalar>& weights) override;
  void recompute(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                 const WeightViews<Scalar>& weights) override {
    forward(pass, y, x, weights);
  }
  void reserve_cache(MemoryLedger& /*ledger*/, const CacheExtents& /*extents*/) override {}
  [[nodiscard]] std::int64_t decode_scratch_bytes(const CacheExtents& extents) const override;
  void decode(const Pass& pass, const kernels::RowPositions& row_positions, Matrix<Scalar> y, Matrix<const Scalar> x,
              const WeightViews<Scalar>& weights) override;
  void backward(const Pass& pass, Matrix<Scalar> dx, const GradientViews& gradients, Matrix<const Scalar> x,
                const WeightViews<Scalar>& weights) override;

 private:
  struct Activations {
    Matrix<Scalar> normed;  // (N, C)
    RowStatistics statistics;
    Matrix<Scalar> hidden;  // (N, F) or (N, 2F)
    Matrix<Scalar> active;  // (N, F)
  };
  struct Gradients {
    Vector<float> reduction;  // sums over rows
    Matrix<Scalar> dbranch;   // (N, C), only under dropout
    Matrix<Scalar> dactive;   // (N, F)
    Matrix<Scalar> dhidden;   // as hidden; under gelu it is dactive
    Matrix<Scalar> dnormed;   // (N, C)
    AdapterScratch<Scalar> adapters;
  };

  [[nodiscard]] Activations used_part(std::int64_t num_rows) const;
  Activations take_activations(Scratch& scratch, std::int64_t num_rows) const;
  AdapterScratch<Scalar> take_adapters(Scratch& scratch, std::int64_t num_rows) const;
  void run(const Pass& pass, const Activations& a, const AdapterScratch<Scalar>& adapters, Matrix<Scalar> y,
           Matrix<const Scalar> x, const WeightViews<Scalar>& weights) const;
  Gradients take_gradients(Scratch& scratch, std::int64_t num_rows) const;

  float dropout_;
  std::int64_t layer_;
  Activation activation_;
  Norm<Scalar> norm_;
  AdaptedProjection<Scalar> up_;
  AdaptedProjection<Scalar> down_;
  bool drops_;  // adapters' inputs
  std::uint64_t output_stream_;
  Activations activations_;
};

}  // namespace kozero::model
