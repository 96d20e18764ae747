// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// decoder.hpp: the decoder-only transformer: embedding, blocks, head; forward, and backward in the reverse order.
//   x_0 = dropout(wte(tokens) + wpe(positions))
//   x_{s+1} = sublayer_s(x_s), two sublayers per block      loss = head(x_2L, targets)
// The weights of each unit are acquired just before use and released just after.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <kozero/model/config.hpp>
#include <kozero/model/head.hpp>
#include <kozero/model/layer.hpp>
#include <kozero/model/model.hpp>
#include <kozero/model/parameter_views.hpp>
#include <kozero/model/self_attention.hpp>
#include "kernels/launch/inputs.hpp"

namespace kozero::model {

struct PositionTable {
  int unit = 0;
  MatrixRef matrix;
};

/// Tokens to the first residual state.
///   x(n) = dropout(wte(token(n)) + wpe(n % T))          wte (V, C)   wpe (T, C), GPT-2 only
/// decode does the same for new rows of cached sequences, each row at its own position, without dropout.
/// Backward adds into the gradients of both tables and overwrites dx. The unit of wpe is acquired after those of wte.
/// Runs on the Pass's space; returns without fencing.
template <class Scalar>
class Embedding {
 public:
  Embedding(const Config& config, std::vector<VocabularyBlock> tokens,
            std::optional<PositionTable> positions = std::nullopt);

  void forward(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens) const;
  void decode(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> x, Vector<const Token> tokens,
              const kernels::RowPositions& row_positions) const;
  /// `table` says which of the tables are trained.
  void backward(ParameterAccess<Scalar>& access, const ParameterTable& table, const Pass& pass, Matrix<Scalar> dx,
                Vector<const Token> tokens) const;

 private:
  /// Calls look_up(rows of wte, token of the first row) for each block of wte, then add_positions(wpe) if wpe exists.
  template <class LookUp, class AddPositions>
  void read(ParameterAccess<Scalar>& access, const LookUp& look_up, const AddPositions& add_positions) const;

  std::vector<VocabularyBlock> tokens_;
  std::optional<PositionTable> positions_;
  bool sums_lookups_apart_;  // separately from the head's gradient of the same units
  std::uint64_t dropout_stream_;
};

template <class Scalar>
using Block = std::vector<std::unique_ptr<Sublayer<Scalar>>>;

/// Adds a unit for block `layer` to the table, unless the block belongs to the unit of the block before it
/// (Config::blocks_in_unit).
void open_unit_of_block(ParameterTable& table, const Config& config, std::int64_t layer);

/// The tensors of one architecture and the parts that use them. The units of the blocks are consecutive, and the head's
/// unit follows them.
template <class Scalar>
struct DecoderParts {
  Config config;
  ParameterTable table;
  Embedding<Scalar> embedding;
  std::vector<Block<Scalar>> blocks;
  Head<Scalar> head;
  std::shared_ptr<RotaryTables> rotary;  ///< null without RoPE
};

/// A unit's gradient is reduced once its last contributor has added to it. The decoder keeps the states x_s; the
/// sublayers and the head keep all other activations. Backward ends at the lowest unit that trains. Frozen tensors of
/// higher units pass the gradient of their input on. With Recompute, blocks form groups of N that share one group's
/// activations. Forward keeps each group's first state. Backward recomputes every group but the last from its first
/// state and holds the group's weights meanwhile.
template <class Scalar>
class Decoder : public Model<Scalar> {
 public:
  explicit Decoder(DecoderParts<Scalar> parts);

  [[nodiscard]] const ParameterTable& parameters() const override { return parts_.table; }
  [[nodiscard]] const Config& config() const override { return parts_.config; }

  void reserve(MemoryLedger& ledger, std::int64_t micro_batch, Recompute recompute, std::int64_t seq) override;
  void forward_backward(ParameterAccess<Scalar>& access, const Batch& batch, float loss_factor, double* loss) override;
  double evaluate(ParameterAccess<Scalar>& access, const Batch& batch) override;
  void next_token_logits(ParameterAccess<Scalar>& access, Matrix<const Token> inputs, std::int64_t num_tokens,
                         Vector<float> logits) override;
  void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) override;
  void decode(ParameterAccess<Scalar>& access, const TokenRows& given, Matrix<float> logits) override;
  [[nodiscard]] double flops_per_token() const override;

 private:
  [[nodiscard]] std::size_t blocks_in_unit() const { return static_cast<std::size_t>(parts_.config.blocks_in_unit); }
  [[nodiscard]] int unit_of_block(std::size_t layer) const {
    return parts_.head.unit() - static_cast<int>(held_.size() - layer / blocks_in_unit());
  }
  [[nodiscard]] bool begins_unit(std::size_t layer) const { return layer % blocks_in_unit() == 0; }
  [[nodiscard]] bool ends_unit(std::size_t layer) const {
    return layer + 1 == parts_.blocks.size() || begins_unit(layer + 1);
  }
  [[nodiscard]] int adapters_of_block(std::size_t layer) const { return adapters_of_[layer / blocks_in_unit()]; }
  [[nodiscard]] bool is_held(std::size_t layer) const { return !held_[layer / blocks_in_unit()].is_empty(); }
  /// Returns the weights of the block's unit and its adapters, acquired if needed. The unit stays acquired until
  /// release_block of one of its blocks, across member functions: recompute acquires units that backward releases.
  WeightViews<Scalar> acquire_block(ParameterAccess<Scalar>& access, std::size_t layer);
  void release_block(ParameterAccess<Scalar>& access, std::size_t layer);

  [[nodiscard]] Pass pass_of(const Batch& batch, float dropout) const;
  [[nodiscard]] Matrix<Scalar> state(std::size_t index, const Pass& pass) const;
  [[nodiscard]] Matrix<Scalar> last_state(const Pass& pass) const { return state(states_.size() - 1, pass); }

  void forward(ParameterAccess<Scalar>& access, const Pass& pass, Vector<const Token> tokens);
  void backward(ParameterAccess<Scalar>& access, const Pass& pass, Matrix<Scalar> dx, Vector<const Token> tokens);
  void recompute(ParameterAccess<Scalar>& access, const Pass& pass, std::size_t first, std::size_t last);

  DecoderParts<Scalar> parts_;
  std::int64_t seq_;  // of a batch, at most
  std::int64_t micro_batch_ = 0;
  std::vector<Matrix<Scalar>> states_;     // 2L + 1 residual states (N, C); groups share the memory of inner states
  std::size_t group_ = 1;                  // blocks whose activations are in memory at once: all L, or Recompute's N
  std::vector<WeightViews<Scalar>> held_;  // weights per unit of blocks; empty if not held
  std::vector<int> adapters_of_;           // per unit of blocks: the unit of its adapters, or -1
  Matrix<Scalar> dstate_;                  // (N, C), gradient of the current residual state
  Vector<std::byte> scratch_;
  std::int64_t cached_rows_ = 0;
  std::int64_t cached_sequences_ = 0;
  Vector<std::byte> decode_scratch_;
  std::array<Matrix<Scalar>, 2> decode_states_;  // (N, C), input and output of a sublayer
};

}  // namespace kozero::model
