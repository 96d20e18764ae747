// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// model.hpp: a model as the trainer sees it: its parameters, its loss with gradients, its next-token logits. It is
// single-device code that reaches weights and gradients through ParameterAccess and does not know which rank holds
// them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <kozero/core/ledger.hpp>
#include <kozero/core/parameter_access.hpp>
#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include "kernels/launch/inputs.hpp"

namespace kozero::model {

// What the trainer knows of a network: its parameters, its loss with gradients, its next-token logits.
// A model is single-device code. It reaches weights and gradients through ParameterAccess, never knows who holds them.
//   order of use in forward_backward: embedding, block 0 ... block L-1, head (forward and backward at once),
//   block L-1 ... block 0, embedding backward. gradient_ready comes once per unit, after its last contributor.
// A batch of zero sequences makes the same calls to ParameterAccess and has a loss of 0.

/// One micro-step's sequences on this rank, in device memory.
struct Batch {
  Matrix<const Token> inputs;              ///< (B, T)
  Matrix<const Token> targets;             ///< (B, T), the next tokens
  Vector<const std::uint64_t> sample_ids;  ///< (B), epoch * 2^40 + sample: names the rows' random streams
  [[nodiscard]] std::int64_t num_sequences() const { return static_cast<std::int64_t>(inputs.extent(0)); }
};

/// What a cache of keys and values is reserved for.
struct CacheExtents {
  std::int64_t sequences = 1;  ///< at once
  std::int64_t positions = 0;  ///< of each, at most config().seq
  std::int64_t rows = 1;       ///< new tokens a call of decode, over all sequences
};

/// New tokens of cached sequences, in device memory.
struct TokenRows {
  Vector<const Token> tokens;  ///< (N)
  kernels::RowPositions row_positions;  ///< (N) each: which cached sequence, and which position of it
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(tokens.extent(0)); }
};

/// What backward computes again from kept inputs instead of finding it in memory (Chen et al. 2016, arXiv:1604.06174).
/// The bits are those of a run that keeps everything.
struct Recompute {
  int blocks = 0;                ///< N: each N-th block's input is kept, N blocks are computed again together; 0: none
  bool keeps_attention = false;  ///< attention's result and logsumexp are kept in each block
};

template <class Scalar>
class Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual const ParameterTable& parameters() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;

  /// Takes activations and workspace for at most `micro_batch` sequences of config().seq tokens. Once, before use.
  virtual void reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute recompute = {}) = 0;

  /// Puts the sum of the batch's token losses (nats, added in double in a fixed order) into *loss, one of HostScalars;
  /// adds the gradient of loss_factor * sum into the units' gradients. The factor is 1 / (tokens of the whole step over
  /// all ranks), in fp16 times the loss scale. Returns without fencing.
  virtual void forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor,
                                double* loss) = 0;

  /// The sum of the batch's token losses without dropout or gradients.
  virtual double evaluate(ParameterAccess<Scalar>& access, const Batch& batch) = 0;

  /// Logits (V) that follow the first `num_tokens` <= T of the tokens in row 0 of `inputs`. Language models only.
  virtual void next_token_logits(ParameterAccess<Scalar>& access, Matrix<const Token> inputs, std::int64_t num_tokens,
                                 Vector<float> logits) = 0;

  /// Takes the cache and workspace of decode; reserve is not needed for it. Once, before use. Language models only.
  virtual void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) = 0;

  /// Runs the new tokens through the network and puts their keys and values into the cache, over what was at their
  /// row_positions. Each sees the cached positions of its sequence up to its own, which must be there or among the
  /// rows. Writes the logits (M, V) that follow the last M <= N of the rows, at most one for each sequence that the
  /// cache was reserved for. Returns without fencing.
  virtual void decode(ParameterAccess<Scalar>& access, const TokenRows& rows, Matrix<float> logits) = 0;

  /// A closing line about the trained weights ("" for language models; the linear demo's distance to its teacher).
  virtual std::string closing_line(ParameterAccess<Scalar>& /*access*/) { return ""; }

  /// Floating point operations of training on one token, forward and backward: 6 N + 6 L C T (llm.c's formula; N
  /// parameters that multiply, causal attention counted half).
  [[nodiscard]] virtual double flops_per_token() const = 0;
};

/// The network `config.arch` names. Throws Error(deck) as `resolved` does.
template <class Scalar>
std::unique_ptr<Model<Scalar>> make_model(const Config& config);

}  // namespace kozero::model
