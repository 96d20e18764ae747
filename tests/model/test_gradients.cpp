// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_gradients.cpp: the gradient of a whole network against central differences of its loss.
// For every tensor, along the gradient itself and along a random direction d:
//   <gradient, d> = (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h,  L(s) = loss(weights + s d)        error O(h^4)
// The loss is a sum in double of float losses, so differences of directions of unit length are good to about 1e-3.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

constexpr double kStep = 1e-2;

double length(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double product(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

/// Unit vectors: the gradient's direction and a random one.
std::vector<std::vector<double>> directions(const std::vector<float>& gradient, std::uint64_t key) {
  std::vector<std::vector<double>> all{{gradient.begin(), gradient.end()}, {}};
  for (std::size_t i = 0; i < gradient.size(); ++i) all[1].push_back(normal_at(key, i));
  for (auto& direction : all) {
    const double scale = length(direction);
    for (double& value : direction) value /= scale;
  }
  return all;
}

double slope(TinyModel& tiny, int row, const std::vector<double>& direction, const std::function<double()>& loss) {
  const std::vector<float> start = tiny.access.weight(row);
  const auto loss_at = [&](double s) {
    std::vector<float> moved = start;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += static_cast<float>(s * direction[i]);
    tiny.access.set_weight(row, moved);
    return loss();
  };
  const double near = loss_at(kStep) - loss_at(-kStep);
  const double far = loss_at(2 * kStep) - loss_at(-2 * kStep);
  tiny.access.set_weight(row, start);
  return (8.0 * near - far) / (12.0 * kStep);
}

/// Each tensor's gradient of scale * loss against the slopes of the loss.
void check_gradients(const model::Config& config) {
  constexpr float kScale = 0.5F;
  TinyModel tiny(config, 3);
  const auto batch = TokenBatch::noise(3, tiny.model->config().seq, config.vocab, 40);
  const auto loss = [&] { return forward_backward(*tiny.model, tiny.access, batch.view(), kScale); };
  loss();
  const auto& rows = tiny.model->parameters().rows();
  std::vector<std::vector<float>> gradients;
  for (std::size_t row = 0; row < rows.size(); ++row)
    gradients.push_back(tiny.access.gradient_of(static_cast<int>(row)));

  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].trainable) continue;
    INFO(config.arch << " " << rows[row].name);
    const double size = length({gradients[row].begin(), gradients[row].end()});
    REQUIRE(size > 1e-3);
    for (const auto& direction : directions(gradients[row], 1000 * row)) {
      const double expected = kScale * slope(tiny, static_cast<int>(row), direction, loss);
      CHECK(std::abs(product(gradients[row], direction) - expected) < 2e-3 * size);
    }
  }
}

TEST_CASE("gpt2: every tensor's gradient is the slope of the loss") {
  check_gradients(tiny_gpt2(true));
  check_gradients(tiny_gpt2(false));
}

TEST_CASE("gpt2 without biases: every tensor's gradient is the slope of the loss") {
  for (model::Config config : {tiny_gpt2(true), tiny_gpt2(false, 0.2F), in_blocks(tiny_gpt2(true), 8)}) {
    config.bias = false;
    const auto bare = model::make_model<float>(config);
    for (const auto& row : bare->parameters().rows()) CHECK_FALSE(row.name.ends_with(".bias"));
    check_gradients(config);
    config.lora = {.rank = 3, .alpha = 0.7F};
    check_gradients(config);
  }
}

TEST_CASE("gpt2 with dropout: the gradient is of the loss with the same elements dropped") {
  check_gradients(tiny_gpt2(true, 0.2F));
}

TEST_CASE("llama: every tensor's gradient is the slope of the loss") {
  check_gradients(tiny_llama(true));
  check_gradients(tiny_llama(false));
}

TEST_CASE("qwen2: every tensor's gradient is the slope of the loss, the biases' too") {
  check_gradients(tiny_qwen2(true));
}

TEST_CASE("qwen3: every tensor's gradient is the slope of the loss, the gains' of q and k too") {
  check_gradients(tiny_qwen3(true));
  check_gradients(tiny_qwen3(false));
}

TEST_CASE("a vocabulary in blocks: every block's gradient is the slope of the loss") {
  check_gradients(in_blocks(tiny_gpt2(true, 0.2F), 8));
  check_gradients(in_blocks(tiny_gpt2(false), 16));
  check_gradients(in_blocks(tiny_llama(true), 24));
  check_gradients(in_blocks(tiny_qwen3(false), 8));
}

TEST_CASE("llama with stretched RoPE, biases, and norms of q and k at once: gradients are the slope of the loss") {
  model::Config config = tiny_llama(true);
  config.qkv_bias = config.qk_norm = true;
  config.rope_scaling = {.factor = 4.0F, .original_seq = 20};
  check_gradients(config);
}

TEST_CASE("adapters: every A's and B's gradient is the slope of the loss, with dropout of the same elements") {
  for (model::Config config : {tiny_gpt2(true, 0.2F), tiny_llama(false), tiny_qwen2(true), tiny_qwen3(true)}) {
    for (const float dropout : {0.0F, 0.3F}) {
      config.lora = {.rank = 3, .alpha = 0.7F, .dropout = dropout, .rslora = dropout > 0.0F};
      check_gradients(config);
    }
  }
}

TEST_CASE("linear demo: gradients are the slope of the loss") {
  check_gradients({.arch = "linear", .dim = 7, .ffn = 3, .vocab = 2, .seed = 9});
}

}  // namespace
}  // namespace kozero::tests
