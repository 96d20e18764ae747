// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// head.hpp: the final norm, the product with the vocabulary, and the cross-entropy, in chunks of rows.
//   h = norm(x) (N, C)      logits = h E^T, kChunkRows rows at a time      loss(n) = -log softmax(logits(n))(target(n))
// Forward and backward are one call: a chunk's logits become their own gradient in place and are used up before the
// next chunk, so the full (N, V) logits never exist. E (V, C) may be the token table (tied) or the head's own tensor.
// Logits have V' >= V columns, those of E's rows of zeros behind it: cross-entropy leaves them out.
#pragma once
#include <kozero/core/device.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/norm.hpp>

namespace kozero::model {

/// The head's unit, and the unit that holds E: the same View twice where the head is not tied.
template <class T>
struct HeadUnits {
  Vector<T> head;
  Vector<T> vocabulary;
};

/// The gradients of both.
struct HeadGradients {
  UnitGradient head;
  UnitGradient vocabulary;
};

template <class Scalar>
class Head {
 public:
  static constexpr std::int64_t kChunkRows = kHostIsDevice ? 512 : 8192;  ///< a GPU needs that many to be busy

  Head(Norm<Scalar> norm, MatrixRef vocabulary) : norm_(norm), vocabulary_(vocabulary) {}

  void reserve(MemoryLedger& ledger, std::int64_t num_rows);
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t num_rows) const;

  /// The rows' losses, and the gradient of scale * their sum: overwrites dx, adds into `gradients`, the first to do so
  /// of E's.
  Vector<const float> forward_backward(const Pass& pass, Matrix<Scalar> dx, const HeadGradients& gradients,
                                       Matrix<const Scalar> x, Vector<const Token> targets, float scale,
                                       const HeadUnits<const Scalar>& weights);

  /// Losses of the rows without gradients.
  Vector<const float> evaluate(const Pass& pass, Matrix<const Scalar> x, Vector<const Token> targets,
                               const HeadUnits<const Scalar>& weights);

  /// Logits (M, V) of the rows x (M, C); what it needs for that lies in the pass's scratch.
  void logits(const Pass& pass, Matrix<float> out, Matrix<const Scalar> x,
              const HeadUnits<const Scalar>& weights) const;
  [[nodiscard]] std::int64_t logits_scratch_bytes(std::int64_t num_rows) const;

 private:
  struct Gradients {
    Vector<float> reduction;
    Matrix<Scalar> logits;   // (kChunkRows, V')
    Matrix<Scalar> dnormed;  // (N, C)
  };

  struct Normed {
    Matrix<Scalar> x;  // (M, C)
    RowStatistics statistics;
  };

  Gradients take_gradients(Scratch& scratch, std::int64_t num_rows) const;
  Normed take_normed(Scratch& scratch, std::int64_t num_rows) const;

  Norm<Scalar> norm_;
  MatrixRef vocabulary_;
  Matrix<Scalar> normed_;  // (N, C)
  RowStatistics statistics_;
  Vector<float> losses_;  // (N)
};

}  // namespace kozero::model
