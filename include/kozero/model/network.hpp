// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// network.hpp: a model together with the weights it reads, for those who need not know in which type they are stored.
//   Network is what training, evaluation and generation see; NetworkOf<Scalar> is a Model<Scalar> and its access
// Each call is the model's own (model.hpp), with the access put in.
#pragma once
#include <memory>
#include <utility>

#include <kozero/model/model.hpp>

namespace kozero::model {

class Network {
 public:
  virtual ~Network() = default;
  [[nodiscard]] virtual const ParameterTable& parameters() const = 0;
  [[nodiscard]] virtual const Config& config() const = 0;
  virtual void reserve(MemoryLedger& ledger, std::int64_t micro_batch) = 0;
  virtual void forward_backward(const Batch& batch, float loss_scale, double* loss) = 0;
  virtual double evaluate(const Batch& batch) = 0;
  virtual void next_token_logits(Matrix<const Token> inputs, std::int64_t num_tokens, Vector<float> logits) = 0;
  virtual void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) = 0;
  virtual void decode(const TokenRows& rows, Matrix<float> logits) = 0;
  virtual std::string closing_line() = 0;
  [[nodiscard]] virtual double flops_per_token() const = 0;
};

template <class Scalar>
class NetworkOf final : public Network {
 public:
  /// `access` outlives it.
  NetworkOf(std::unique_ptr<Model<Scalar>> model, ParameterAccess<Scalar>& access)
      : model_(std::move(model)), access_(access) {}

  [[nodiscard]] const ParameterTable& parameters() const override { return model_->parameters(); }
  [[nodiscard]] const Config& config() const override { return model_->config(); }
  void reserve(MemoryLedger& ledger, std::int64_t micro_batch) override { model_->reserve(ledger, micro_batch); }
  void forward_backward(const Batch& batch, float loss_scale, double* loss) override {
    model_->forward_backward(access_, batch, loss_scale, loss);
  }
  double evaluate(const Batch& batch) override { return model_->evaluate(access_, batch); }
  void next_token_logits(Matrix<const Token> inputs, std::int64_t num_tokens, Vector<float> logits) override {
    model_->next_token_logits(access_, inputs, num_tokens, logits);
  }
  void reserve_cache(MemoryLedger& ledger, const CacheExtents& extents) override {
    model_->reserve_cache(ledger, extents);
  }
  void decode(const TokenRows& rows, Matrix<float> logits) override { model_->decode(access_, rows, logits); }
  std::string closing_line() override { return model_->closing_line(access_); }
  [[nodiscard]] double flops_per_token() const override { return model_->flops_per_token(); }

 private:
  std::unique_ptr<Model<Scalar>> model_;
  ParameterAccess<Scalar>& access_;
};

}  // namespace kozero::model
