// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tiny_models.hpp: networks of odd sizes, ready to run, for the model tests.
#pragma once
#include <memory>

#include <kozero/model/model.hpp>
#include <support/models.hpp>
#include <support/resident_access.hpp>
#include <support/token_batch.hpp>

namespace kozero::tests {

inline model::Config tiny_gpt2(bool tied, float dropout = 0.0F) {
  return {.arch = "gpt2",
          .layers = 2,
          .dim = 15,
          .heads = 3,
          .ffn = 22,
          .vocab = 19,
          .seq = 7,
          .tie_embeddings = tied,
          .dropout = dropout,
          .seed = 5};
}

inline model::Config tiny_llama(bool tied) {
  return {.arch = "llama",
          .layers = 2,
          .dim = 13,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .ffn = 11,
          .vocab = 19,
          .seq = 7,
          .tie_embeddings = tied,
          .seed = 5};
}

inline model::Config tiny_qwen2(bool tied) {
  model::Config config = tiny_llama(tied);
  config.arch = "qwen2";
  return config;
}

inline model::Config tiny_qwen3(bool tied) {
  model::Config config = tiny_llama(tied);
  config.arch = "qwen3";
  return config;
}

/// A model with its memory and resident weights. Weights have a large deviation, and gains and biases differ from 1 and
/// 0, so that every gradient is far from zero.
struct TinyModel {
  explicit TinyModel(const model::Config& config, std::int64_t micro_batch, model::Recompute recompute = {})
      : model(model::make_model<float>(config)), access(model->parameters()) {
    model->reserve(ledger, micro_batch, recompute);
    for (std::size_t row = 0; row < model->parameters().rows().size(); ++row) {
      Parameter parameter = model->parameters().rows()[row];
      const float center = parameter.initial == Initial::ones ? 1.0F : 0.0F;
      parameter.initial = Initial::normal;
      parameter.deviation = 0.3F;
      std::vector<float> values(static_cast<std::size_t>(parameter.extent()));
      fill_initial(parameter, 3, parameter.first, HostVector<float>(values.data(), values.size()));
      for (float& value : values) value += center;
      access.set_weight(static_cast<int>(row), values);
    }
  }

  MemoryLedger ledger;
  std::unique_ptr<model::Model<float>> model;
  ResidentAccess access;
};

}  // namespace kozero::tests
