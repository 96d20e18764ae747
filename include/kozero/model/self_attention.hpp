// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// self_attention.hpp: the attention branch of a block, for any number of key/value heads, and the tables of RoPE.
//   qkv = norm(x) Wqkv + b          (N, (H + 2 KV) D)    q heads | k heads | v heads
//   q, k = rope(qk_norm(q, k))      each only if the network has it
//   heads = softmax(q k^T / sqrt(D), causal) v           (N, H D)
//   y = x + dropout(heads Wo + b)
// Keeps norm(x), qkv, heads and one logsumexp per row and head. RoPE rotates qkv in place. With a QkNorm the layer
// keeps qkv from before the norm, as the norm's backward needs it. The normed and rotated qkv is computed in scratch,
// and recomputed in backward, so that no layer keeps a second qkv. decode caches only keys and values, normed and
// rotated. Vaswani et al. 2017, arXiv:1706.03762; grouped-query: Ainslie et al. 2023, arXiv:2305.13245.
#pragma once
#include <memory>
#include <optional>

#include <kozero/core/ledger.hpp>
#include <kozero/model/adapters.hpp>
#include <kozero/model/config.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/norm.hpp>
#include "kernels/attention/attention_cached.hpp"

namespace kozero::model {

/// The cosines and sines of RoPE, computed once and read by every layer.
///   angle(t, i) = t * frequency(i)          cosines, sines (T, D/2)          frequency: kernels/ops/rope.hpp
/// Su et al. 2021, arXiv:2104.09864.
struct RotaryTables {
  float theta = 10000.0F;
  RopeScaling scaling;
  Matrix<float> cosines;
  Matrix<float> sines;

  /// Takes the tables and, unless the ledger only plans, fills them on `space`.
  void reserve(MemoryLedger& ledger, const Device& space, std::int64_t positions, std::int64_t head_dim);
};

/// The shape of the network's attention without dropout.
kernels::AttentionShape attention_shape(const Config& config, std::int64_t batch, std::int64_t positions);

template <class Scalar>
struct AttentionWeights {
  AdaptedProjection<Scalar> qkv;
  AdaptedProjection<Scalar> output;
  std::optional<QkNorm<Scalar>> qk_norm;
};

template <class Scalar>
class SelfAttention : public Sublayer<Scalar> {
 public:
  /// `rotary` may be null: attention then applies no RoPE (GPT-2 adds positions in the embedding).
  SelfAttention(const Config& config, std::int64_t layer, Norm<Scalar> norm, const AttentionWeights<Scalar>& weights,
                std::shared_ptr<const RotaryTables> rotary);

  void reserve(MemoryLedger& ledger, std::int64_t batch, std::int64_t positions, const Sublayer<Scalar>* other,
               bool keeps_attention) override;
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t batch, std::int64_t positions) const override;
  void forward(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, const WeightViews<Scalar>& weights) override;
  void recompute(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x,
                 const WeightViews<Scalar>& weights) override;
  void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) override;
  [[nodiscard]] std::int64_t decode_scratch_bytes(const CacheExtents& extents) const override;
  void decode(const Pass& pass, const kernels::RowPositions& row_positions, Matrix<Scalar> y, Matrix<const Scalar> x,
              const WeightViews<Scalar>& weights) override;
  void backward(const Pass& pass, Matrix<Scalar> dx, const GradientViews& gradients, Matrix<const Scalar> x,
                const WeightViews<Scalar>& weights) override;

 private:
  struct Activations {
    Matrix<Scalar> normed;  // (N, C)
    RowStatistics statistics;
    Matrix<Scalar> qkv;       // (N, (H + 2 KV) D)
    Matrix<Scalar> heads;     // (N, H D)
    Matrix<float> logsumexp;  // (B H, T)
  };
  struct Temporaries {
    Vector<float> attention;    // the attention kernels' workspace
    Matrix<Scalar> normed_qkv;  // (N, (H + 2 KV) D), only with a QkNorm
    Matrix<float> qk_rstd;      // (N, H + KV), only with a QkNorm
    Vector<float> reduction;    // backward's sums over rows
    Matrix<Scalar> dbranch;     // (N, C), only under dropout
    Matrix<Scalar> dheads;      // (N, H D)
    Matrix<Scalar> dqkv;        // (N, (H + 2 KV) D)
    Matrix<Scalar> dnormed;     // (N, C)
    AdapterScratch<Scalar> adapters;
  };

  struct Decoding {
    Matrix<Scalar> normed;  // (N, C)
    RowStatistics statistics;
    Matrix<Scalar> qkv;         // (N, (H + 2 KV) D)
    Matrix<Scalar> normed_qkv;  // like qkv; only with a QkNorm
    Matrix<float> qk_rstd;      // (N, H + KV), only with a QkNorm
    Matrix<Scalar> heads;       // (N, H D)
    Vector<float> attention;    // the attention kernel's workspace
    AdapterScratch<Scalar> adapters;
  };

  void run(const Pass& pass, Matrix<Scalar> y, Matrix<const Scalar> x, const WeightViews<Scalar>& weights,
           bool attends) const;
  Decoding take_decoding(Scratch& scratch, std::int64_t num_rows) const;
  [[nodiscard]] kernels::AttentionShape shape(const Pass& pass) const;
  [[nodiscard]] Activations used_part(const Pass& pass) const;
  Temporaries take_temporaries(Scratch& scratch, const kernels::AttentionShape& shape) const;
  Matrix<const Scalar> turned_qkv(const Pass& pass, const Activations& a, const Temporaries& t,
                                  const WeightViews<Scalar>& weights) const;
  void rotate(const Pass& pass, Matrix<Scalar> qkv) const;
  void rotate_back(const Pass& pass, Matrix<Scalar> dqkv) const;

  Config config_;
  std::int64_t layer_;
  Norm<Scalar> norm_;
  AdaptedProjection<Scalar> qkv_;
  AdaptedProjection<Scalar> output_;
  std::optional<QkNorm<Scalar>> qk_norm_;
  std::shared_ptr<const RotaryTables> rotary_;
  std::uint64_t probability_stream_;
  std::uint64_t output_stream_;
  Activations activations_;
  bool keeps_result_ = false;  // heads and logsumexp are not shared with other layers
  kernels::CacheShape cache_;
  kernels::CachedHeads<Scalar> cached_heads_;
};

}  // namespace kozero::model
