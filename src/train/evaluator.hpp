// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// evaluator.hpp: the model and its weights on this rank, for evaluation, generation and as the part of a trainer that
// has no gradients.
#pragma once
#include <memory>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/settings.hpp>
#include <kozero/zero/sharded_state.hpp>

namespace kozero::train {

/// Where settings.offload puts state; Evaluators do not offload. `offloaded` may be nullptr.
zero::StateMemory state_memory(const Settings& settings, MemorySource* offloaded);

/// `Interface` is Evaluator, or Engine as the base of a trainer.
template <class Scalar, class Interface = Evaluator>
class EvaluatorOf : public Interface {
 public:
  /// Takes the weights, and for training the gradients; then the loader's memory, unless settings.use is generation.
  EvaluatorOf(const Settings& settings, const distributed::Mesh& mesh, MemoryLedger& ledger);

  [[nodiscard]] const model::Config& config() const override { return model_->config(); }
  [[nodiscard]] std::int64_t seq() const override { return seq_; }
  [[nodiscard]] const ParameterTable& parameters() const override { return model_->parameters(); }
  [[nodiscard]] double flops_per_token() const override { return model_->flops_per_token(); }
  std::string closing_line() override { return model_->closing_line(state_); }
  double evaluate(const model::Batch& batch) override { return model_->evaluate(state_, batch); }
  void next_token_logits(Matrix<const Token> inputs, std::int64_t num_tokens, Vector<float> logits) override {
    model_->next_token_logits(state_, inputs, num_tokens, logits);
  }
  void reserve_cache(MemoryLedger& ledger, const model::CacheExtents& extents) override {
    model_->reserve_cache(ledger, extents);
  }
  void decode(const model::TokenRows& rows, Matrix<float> logits) override { model_->decode(state_, rows, logits); }

  void initialize(std::uint64_t seed) override { state_.initialize(seed); }
  [[nodiscard]] bool is_in_master(int unit) override { return state_.weights().is_in_master(unit); }
  [[nodiscard]] UnitRange range_to_put(int unit) override { return state_.weights().range_to_put(unit); }
  void put(int unit, std::int64_t begin, const HostVector<const float>& values) override {
    state_.weights().put(unit, begin, values);
  }
  [[nodiscard]] const distributed::DistributedArray<float>& master() const override {
    return state_.weights().master();
  }
  void publish() override { state_.weights().publish(); }

  [[nodiscard]] distributed::Communicator& comm() override { return comm_; }
  [[nodiscard]] data::BatchLoader& loader() override {
    require(loader_ != nullptr, "an evaluator for generation loads no batches");
    return *loader_;
  }
  [[nodiscard]] zero::ShardedState<Scalar>& state() { return state_; }

 protected:
  /// Takes activations for settings.use, none for generation, and books the workspace of matrix products.
  void reserve(const Settings& settings, MemoryLedger& ledger);
  [[nodiscard]] model::Model<Scalar>& model() { return *model_; }
  [[nodiscard]] MemorySource* offloaded() { return offloaded_.get(); }

 private:
  distributed::Communicator& comm_;
  std::unique_ptr<model::Model<Scalar>> model_;
  std::int64_t seq_;
  std::unique_ptr<MemorySource> offloaded_;  // set if Settings::offload uses host or disk
  zero::ShardedState<Scalar> state_;
  std::unique_ptr<data::BatchLoader> loader_;  // null for generation
};

}  // namespace kozero::train
