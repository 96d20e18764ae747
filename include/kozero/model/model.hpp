// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model.hpp: the interface of a model: its parameters, its loss with gradients, its next-token logits. A model is
// single-device code that reaches weights and gradients through ParameterAccess, independent of the ranks that hold
// them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <kozero/core/batch.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include "kernels/launch/inputs.hpp"

namespace kozero::model {

using kozero::Batch;

/// The extents of a cache of keys and values.
struct CacheExtents {
  std::int64_t sequences = 1;  ///< cached at once
  std::int64_t positions = 0;  ///< of each sequence, at most config().seq
  std::int64_t rows = 1;       ///< new tokens per call of decode, over all sequences
};

/// New tokens of cached sequences, in device memory.
struct TokenRows {
  Vector<const Token> tokens;           ///< (N)
  kernels::RowPositions row_positions;  ///< (N) each: a row's cached sequence and its position there
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(tokens.extent(0)); }
};

/// The activations that backward recomputes from kept inputs instead of reading them from memory (Chen et al. 2016,
/// arXiv:1604.06174). The bits are the same as in a run that keeps all activations.
struct Recompute {
  int blocks = 0;                ///< N: each N-th block's input is kept, N blocks are recomputed together; 0: none
  bool keeps_attention = false;  ///< attention's result and logsumexp are kept in each block
};

/// The interface between the trainer and a network. forward_backward uses the units in this order: embedding,
/// block 0 ... block L-1, head (forward and backward at once), block L-1 ... block 0, embedding backward. It calls
/// gradient_ready once per unit, after the unit's last contributor. A batch of zero sequences makes the same calls to
/// ParameterAccess and has a loss of 0.
template <class Scalar>
class Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual const ParameterTable& parameters() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;

  /// Takes activations and workspace for at most `micro_batch` sequences of at most `seq` tokens (0: config().seq).
  /// Call once, before use.
  virtual void reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute recompute = {},
                       std::int64_t seq = 0) = 0;

  /// Writes the sum of the batch's token losses (nats, added in double in a fixed order) to *loss, one of HostScalars,
  /// and adds the gradient of loss_factor * sum into the units' gradients. loss_factor is 1 / (tokens of the whole step
  /// over all ranks), in fp16 times the loss scale. Returns without fencing.
  virtual void forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor,
                                double* loss) = 0;

  /// The sum of the batch's token losses without dropout or gradients.
  virtual double evaluate(ParameterAccess<Scalar>& access, const Batch& batch) = 0;

  /// Logits (V) that follow the first `num_tokens` <= T of the tokens in row 0 of `inputs`. Language models only.
  virtual void next_token_logits(ParameterAccess<Scalar>& access, Matrix<const Token> inputs, std::int64_t num_tokens,
                                 Vector<float> logits) = 0;

  /// Takes the cache and workspace of decode, which does not need reserve. Call once, before use. Language models only.
  virtual void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) = 0;

  /// Runs the new tokens through the network and overwrites the cache at their row_positions with their keys and
  /// values. A token attends to its sequence's positions up to its own, which must be in the cache or among the rows.
  /// Writes the logits (M, V) that follow the last M <= N rows; M is at most the number of sequences that the cache is
  /// reserved for. Returns without fencing.
  virtual void decode(ParameterAccess<Scalar>& access, const TokenRows& rows, Matrix<float> logits) = 0;

  /// A closing line about the trained weights ("" for language models; the linear demo's distance to its teacher).
  virtual std::string closing_line(ParameterAccess<Scalar>& /*access*/) { return ""; }

  /// Floating point operations of training on one token, forward and backward: 6 N + 6 L C T (llm.c's formula; N
  /// parameters that multiply, causal attention counted half; T of reserve()), less the products of backward that
  /// frozen tensors save.
  [[nodiscard]] virtual double flops_per_token() const = 0;
};

/// The network named by config.arch. Throws Error(deck) as `resolved` does.
template <class Scalar>
std::unique_ptr<Model<Scalar>> make_model(const Config& config);

}  // namespace kozero::model
