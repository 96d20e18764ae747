// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// head.hpp: the final norm, the product with the vocabulary, and the cross-entropy, in chunks of rows.
//   h = norm(x) (N, C)      logits = h E^T, kChunkRows rows at a time      loss(n) = -log softmax(logits(n))(target(n))
// Forward and backward are one call: a chunk's logits are overwritten by their gradient and used before the next chunk,
// so the full (N, V) logits never exist. E (V, C) is the token table (tied) or a tensor of the head.
// E is followed by V' - V rows of zeros, so logits have V' >= V columns; cross-entropy ignores the extra columns.
//
// With E in blocks of rows E_b (model.vocab_block) only one block is needed at a time. There are two passes over the
// blocks, and each pass acquires each block once:
//   the last block first:   logits of the block, all chunks: each row's running maximum and sum of exponentials; losses
//   the first block first:  the same logits again, their gradient in place, dh += dlogits E_b, dE_b = dlogits^T h
// This takes four products instead of the three of a whole E. Only one block's part of E, of E's gradient and of a
// chunk's logits is in memory at a time. dh is summed in float.
#pragma once
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/norm.hpp>
#include <kozero/model/parameter_views.hpp>

namespace kozero::kernels {
struct SoftmaxOfRows;
}

namespace kozero::model {

template <class Scalar>
class Head {
 public:
  static constexpr std::int64_t kChunkRows = kHostIsDevice ? 512 : 8192;  ///< a GPU needs 8192 rows to be busy

  /// `unit`: the norm's unit. `vocabulary`: E, in the norm's unit or the embedding's; with `in_blocks`, in units that
  /// hold only blocks of E.
  Head(Norm<Scalar> norm, int unit, std::vector<VocabularyBlock> vocabulary, bool in_blocks);

  [[nodiscard]] int unit() const { return unit_; }

  void reserve(MemoryLedger& ledger, std::int64_t num_rows);
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t num_rows) const;

  /// The rows' losses, and the gradient of scale * (sum of losses): overwrites dx, and adds into the units' gradients
  /// as the first contributor to E's. Marks the gradients of the norm's unit and of blocks of E as ready. `table` says
  /// which tensors are trained; a whole E in a unit of its own must be frozen.
  Vector<const float> forward_backward(ParameterAccess<Scalar>& access, const ParameterTable& table, const Pass& pass,
                                       Matrix<Scalar> dx, Matrix<const Scalar> x, Vector<const Token> targets,
                                       float scale);

  /// Losses of the rows without gradients.
  Vector<const float> evaluate(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<const Scalar> x,
                               Vector<const Token> targets);

  /// Logits (M, V) of the rows x (M, C). Temporaries are taken from the pass's scratch.
  void logits(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<float> out, Matrix<const Scalar> x) const;
  [[nodiscard]] std::int64_t logits_scratch_bytes(std::int64_t num_rows) const;

 private:
  struct Gradients {
    Vector<float> reduction;
    Vector<Scalar> logits;   // of a chunk's rows and a block's padded columns
    Matrix<Scalar> dnormed;  // (N, C)
    Matrix<float> sum;       // (N, C): dnormed summed over the blocks; the memory of dnormed where Scalar is float
  };

  struct Normed {
    Matrix<Scalar> x;  // (M, C)
    RowStatistics statistics;
    Vector<float> logits;  // of a block, (M, columns)
  };

  /// Rows [first, first + count) of x, h, targets and losses.
  struct Chunk {
    std::int64_t first, count;
  };

  [[nodiscard]] std::int64_t largest_block() const;  // in padded rows
  Gradients take_gradients(Scratch& scratch, std::int64_t num_rows) const;
  Normed take_normed(Scratch& scratch, std::int64_t num_rows) const;
  /// Calls body(chunk) for all rows; without rows, calls it once with an empty chunk, whose product zeroes E's
  /// gradient. If documents are given, the last of several chunks is not short: products of few rows have other bits,
  /// and those of a document must not depend on its place.
  template <class Body>
  static void for_each_chunk(const Pass& pass, const Body& body);

  /// The weights of the unit that holds a whole E: `of_norm` if E is in the norm's unit, else acquired.
  [[nodiscard]] WeightViews<Scalar> acquire_vocabulary(ParameterAccess<Scalar>& access,
                                                       const WeightViews<Scalar>& of_norm) const;
  void release_vocabulary(ParameterAccess<Scalar>& access) const;
  void backward_of_whole(const Pass& pass, const Gradients& d, const GradientViews& gradients,
                         Vector<const Token> targets, float scale, const WeightViews<Scalar>& weights);

  /// The first pass over the blocks: fills softmax_ and losses_ of all rows.
  void walk_forward(ParameterAccess<Scalar>& access, const Pass& pass, const Gradients& d, Vector<const Token> targets);
  /// The second pass: fills d.dnormed and adds into the gradients of the blocks.
  void walk_backward(ParameterAccess<Scalar>& access, const ParameterTable& table, const Pass& pass, const Gradients& d,
                     Vector<const Token> targets, float scale);
  [[nodiscard]] kernels::SoftmaxOfRows softmax_of(const Chunk& chunk) const;

  Norm<Scalar> norm_;
  int unit_;
  std::vector<VocabularyBlock> vocabulary_;
  bool in_blocks_;
  Matrix<Scalar> normed_;  // (N, C)
  RowStatistics statistics_;
  Vector<float> losses_;   // (N)
  Vector<float> softmax_;  // (3, N): maximum, sum and target's logit of each row; only with in_blocks_
};

}  // namespace kozero::model
