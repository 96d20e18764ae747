// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// linear_demo.hpp: the smallest model: a linear map that recovers its teacher.
//   y = W x + b      x (dim), y (ffn)      loss = |y - y*|^2 / (2 ffn),  y* = W* x + b*
// x ~ N(0, 1) from (seed, sample id), W* ~ N(0, 1/dim) and b* ~ N(0, 1) from the seed; a sample counts as one token,
// the batch's tokens are not read. The exact minimum is W = W*, b = b*, loss 0.
#pragma once
#include <kozero/model/model.hpp>
#include <kozero/model/projection.hpp>

namespace kozero::model {

/// dim inputs, ffn outputs (default: dim); seq is 1.
void resolve_linear(Config& config);

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_linear(const Config& config);

template <class Scalar>
class LinearDemo : public Model<Scalar> {
 public:
  LinearDemo(const Config& config, ParameterTable table, MatrixRef weight, VectorRef bias);

  [[nodiscard]] const ParameterTable& parameters() const override { return table_; }
  [[nodiscard]] const Config& config() const override { return config_; }

  /// Keeps everything: there is one layer.
  void reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute recompute, std::int64_t seq) override;
  /// Waits, as no other model does: the inputs are drawn on the host.
  void forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor, double* loss) override;
  double evaluate(ParameterAccess<Scalar>& access, const Batch& batch) override;
  /// Throws Error(deck): there are no tokens to generate.
  void next_token_logits(ParameterAccess<Scalar>& access, Matrix<const Token> inputs, std::int64_t num_tokens,
                         Vector<float> logits) override;
  /// Both throw as next_token_logits does.
  void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) override;
  void decode(ParameterAccess<Scalar>& access, const TokenRows& rows, Matrix<float> logits) override;
  /// The largest |W - W*| and |b - b*|.
  std::string closing_line(ParameterAccess<Scalar>& access) override;
  [[nodiscard]] double flops_per_token() const override;

 private:
  template <class T>
  using Staging = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;

  /// Draws x and writes y - y* of the batch's samples; returns the sum of their losses.
  double forward(const Batch& batch, const WeightViews<Scalar>& weights);
  void draw_inputs(const Batch& batch);

  Config config_;
  ParameterTable table_;
  MatrixRef weight_;
  VectorRef bias_;
  Projection<Scalar> projection_;
  Staging<Scalar> teacher_;            // W*, b* at their offsets in the unit
  Vector<Scalar> negated_teacher_;     // the same negated, on the device
  Staging<std::uint64_t> sample_ids_;  // (B)
  Staging<Scalar> drawn_;              // (B, dim)
  Matrix<Scalar> x_;                   // (B, dim)
  Matrix<Scalar> difference_;          // (B, ffn)   y, then y - y*, then its gradient
  Matrix<Scalar> target_;              // (B, ffn)   -y*
  Matrix<Scalar> dx_;                  // (B, dim)
  Vector<float> reduction_;
};

}  // namespace kozero::model
