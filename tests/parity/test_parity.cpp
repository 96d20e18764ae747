// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_parity.cpp: ten AdamW steps of a tiny GPT-2, Llama, Qwen2 and Qwen3 against PyTorch's float32
// (make_reference.py), and eight steps of adapters beside them against PEFT (make_lora_reference.py).
//   losses: relative 1e-5        first gradients: 1e-5 of each tensor's largest entry
//   weights after ten steps: 1e-5 of each tensor's largest entry + 1e-2 lr
//   adapters: losses relative 1e-6, weights after eight steps 1e-6
// GPT-2's key biases are checked separately: they shift all scores of a row equally, so their exact gradient is zero.
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include <kozero/optim/optimizer.hpp>
#include <support/models.hpp>
#include <support/resident_access.hpp>
#include <support/token_batch.hpp>
#include "kernels/launch/reduce.hpp"
#include "kernels/ops/adamw.hpp"

namespace kozero::tests {
namespace {

using Values = std::vector<std::vector<float>>;  // by row of the ParameterTable

/// The rows of the tensors in the file; other rows are empty.
Values read_tensors(std::istream& file, const ParameterTable& table, const nlohmann::json& tensors) {
  std::vector<std::vector<float>> whole(table.tensors().size());
  for (const auto& tensor : tensors) {
    const auto named = std::ranges::find(table.tensors(), tensor["name"].get<std::string>(), &Tensor::name);
    INFO(tensor.dump());
    REQUIRE(named != table.tensors().end());
    REQUIRE(named->shape == tensor["shape"].get<std::vector<std::int64_t>>());
    auto& stored = whole[static_cast<std::size_t>(named - table.tensors().begin())];
    stored.resize(static_cast<std::size_t>(named->extent()));
    file.read(reinterpret_cast<char*>(stored.data()), static_cast<std::streamsize>(stored.size() * sizeof(float)));
    REQUIRE(file.good());
  }
  Values values;
  for (const auto& row : table.rows()) {
    const auto& tensor = whole[static_cast<std::size_t>(row.tensor)];
    if (tensor.empty()) {
      values.emplace_back();
      continue;
    }
    const auto begin = tensor.begin() + row.first;
    values.emplace_back(begin, begin + row.extent());
  }
  return values;
}

nlohmann::json read_record(const std::string& path) {
  std::ifstream file(path + ".json");
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

model::Config config_of(const nlohmann::json& record) {
  const auto& c = record["config"];
  model::Config config{.arch = c["arch"],
                       .layers = c["layers"],
                       .dim = c["dim"],
                       .heads = c["heads"],
                       .kv_heads = c["kv_heads"],
                       .head_dim = c.value("head_dim", 0),
                       .ffn = c["ffn"],
                       .vocab = c["vocab"],
                       .seq = c["seq"],
                       .tie_embeddings = c["tie_embeddings"],
                       .rope_theta = c["rope_theta"],
                       .norm_eps = c["norm_eps"],
                       .bias = c.value("bias", true)};
  if (c.contains("rope_scaling")) {
    const auto& scaling = c["rope_scaling"];
    config.rope_scaling = {scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"],
                           scaling["original_seq"]};
  }
  return config;
}

/// Elements of a row that are GPT-2's key biases: [first, last).
std::pair<std::size_t, std::size_t> key_biases(const Parameter& row) {
  if (!row.name.ends_with("attn.c_attn.bias")) return {0, 0};
  const auto third = static_cast<std::size_t>(row.extent() / 3);
  return {third, 2 * third};
}

/// Whether each element is within share * its tensor's largest entry + absolute, without key biases.
void check_close(const ParameterTable& table, const Values& ours, const Values& theirs, float share, float absolute) {
  for (std::size_t row = 0; row < ours.size(); ++row) {
    const auto [first, last] = key_biases(table.rows()[row]);
    float largest = 0.0F;
    float difference = 0.0F;
    for (std::size_t i = 0; i < ours[row].size(); ++i) {
      largest = std::max(largest, std::abs(theirs[row][i]));
      if (i >= first && i < last) continue;
      difference = std::max(difference, std::abs(ours[row][i] - theirs[row][i]));
    }
    INFO(table.rows()[row].name << ": off by " << difference << ", largest entry " << largest);
    CHECK(difference <= share * largest + absolute);
  }
}

/// KoZeRO's run: a resident model with AdamW's moments, by rows of the ParameterTable.
class Training {
 public:
  Training(const nlohmann::json& record, const model::Config& config, double layer_decay = 1.0)
      : record_(record),
        layer_decay_(layer_decay),
        model_(model::make_model<float>(config)),
        access_(model_->parameters()) {
    model_->reserve(ledger_, record["batch"].get<std::int64_t>());
    for (const auto& row : table().rows()) {
      moments_.emplace_back(row.name + " m", static_cast<std::size_t>(row.extent()));
      squares_.emplace_back(row.name + " v", static_cast<std::size_t>(row.extent()));
    }
  }

  [[nodiscard]] const ParameterTable& table() const { return model_->parameters(); }
  [[nodiscard]] int num_rows() const { return static_cast<int>(table().rows().size()); }

  void set(const Values& weights) {
    for (int row = 0; row < num_rows(); ++row) {
      const std::vector<float>& values = weights[static_cast<std::size_t>(row)];
      if (!values.empty()) access_.set_weight(row, values);
    }
  }

  /// The mean loss of step `step` (from 0) and its gradients.
  double forward_backward(std::size_t step) {
    std::vector<Token> inputs;
    std::vector<Token> targets;
    for (const auto& window : record_["tokens"][step]) {
      const auto tokens = window.get<std::vector<Token>>();
      inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
      targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
    }
    const auto num_tokens = static_cast<double>(inputs.size());
    const TokenBatch batch(inputs, targets, model_->config().seq);
    access_.clear_gradients();
    return tests::forward_backward(*model_, access_, batch.view(), static_cast<float>(1.0 / num_tokens)) / num_tokens;
  }

  void update(std::size_t step) {
    const auto& optimizer = record_["optimizer"];
    kernels::AdamW adamw;
    const auto rates = optim::layer_rates(table(), layer_decay_);
    adamw.beta1 = optimizer["betas"][0];
    adamw.beta2 = optimizer["betas"][1];
    adamw.eps = optimizer["eps"];
    adamw.correction1 = 1.0 - std::pow(adamw.beta1, static_cast<double>(step + 1));
    adamw.correction2 = 1.0 - std::pow(adamw.beta2, static_cast<double>(step + 1));
    adamw.gradient_scale = clipping();
    for (int row = 0; row < num_rows(); ++row) {
      if (!table().row(row).trainable) continue;
      adamw.lr = optimizer["lr"].get<double>() * rates[static_cast<std::size_t>(table().row(row).tensor)];
      adamw.weight_decay = table().row(row).decay ? optimizer["weight_decay"].get<double>() : 0.0;
      kernels::adamw_update(Device(), access_.weight_view(row), access_.weight_view(row), state(moments_, row),
                            state(squares_, row), access_.gradient_view(row), adamw);
    }
    Kokkos::fence();
  }

  [[nodiscard]] Values gradients() const {
    return all([this](int row) { return access_.gradient_of(row); });
  }
  [[nodiscard]] Values weights() const {
    return all([this](int row) { return access_.weight(row); });
  }

 private:
  using Storage = std::vector<Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory>>;

  static Vector<float> state(const Storage& storage, int row) {
    const auto& view = storage[static_cast<std::size_t>(row)];
    return Vector<float>(view.data(), view.extent(0));
  }

  /// clip_grad_norm_'s factor.
  [[nodiscard]] double clipping() const {
    const double clip = record_["clip"];
    if (clip == 0.0 || table().has_adapters()) return 1.0;
    double squares = 0.0;
    for (int row = 0; row < num_rows(); ++row) {
      squares += kernels::sum_of_squares(Device(), Vector<const float>(access_.gradient_view(row)));
    }
    return std::min(1.0, clip / (std::sqrt(squares) + 1e-6));
  }

  template <class Get>
  [[nodiscard]] Values all(const Get& get) const {
    Values values;
    for (int row = 0; row < num_rows(); ++row) values.push_back(get(row));
    return values;
  }

  const nlohmann::json& record_;
  double layer_decay_;
  MemoryLedger ledger_;
  std::unique_ptr<model::Model<float>> model_;
  ResidentAccess access_;
  Storage moments_;
  Storage squares_;
};

void compare(const std::string& arch, std::int64_t vocab_block = 0) {
  const std::string path = std::string(KOZERO_TEST_DATA) + "/" + arch;
  const auto record = read_record(path);
  const float lr = record["optimizer"]["lr"];
  model::Config config = config_of(record);
  config.vocab_block = vocab_block;
  Training training(record, config);
  REQUIRE(record["tensors"].size() == training.table().tensors().size());
  std::ifstream file(path + ".bin", std::ios::binary);
  const Values initial = read_tensors(file, training.table(), record["tensors"]);
  const Values gradients = read_tensors(file, training.table(), record["tensors"]);
  const Values weights = read_tensors(file, training.table(), record["tensors"]);

  training.set(initial);
  for (std::size_t step = 0; step < record["losses"].size(); ++step) {
    const double loss = training.forward_backward(step);
    CHECK(loss == Catch::Approx(record["losses"][step].get<double>()).epsilon(1e-5));
    if (step == 0) check_close(training.table(), training.gradients(), gradients, 1e-5F, 0.0F);
    const Values ours = training.gradients();
    for (std::size_t row = 0; row < ours.size(); ++row) {
      const auto [first, last] = key_biases(training.table().rows()[row]);
      for (std::size_t i = first; i < last; ++i) CHECK(std::abs(ours[row][i]) < 1e-6F);
    }
    training.update(step);
  }
  check_close(training.table(), training.weights(), weights, 1e-5F, 1e-2F * lr);
}

void compare_layer_rates(const std::string& arch) {
  const std::string data = std::string(KOZERO_TEST_DATA) + "/";
  const auto base = read_record(data + arch);
  const auto record = read_record(data + "layers_" + arch);
  Training training(base, config_of(base), record["layer_decay"]);
  std::ifstream start(data + arch + ".bin", std::ios::binary);
  std::ifstream file(data + "layers_" + arch + ".bin", std::ios::binary);
  training.set(read_tensors(start, training.table(), base["tensors"]));
  for (std::size_t step = 0; step < record["losses"].size(); ++step) {
    const double loss = training.forward_backward(step);
    CHECK(loss == Catch::Approx(record["losses"][step].get<double>()).epsilon(1e-5));
    training.update(step);
  }
  const float lr = base["optimizer"]["lr"];
  check_close(training.table(), training.weights(), read_tensors(file, training.table(), base["tensors"]), 1e-5F,
              1e-2F * lr);
}

TEST_CASE("with a learning rate per layer, both train as PyTorch's parameter groups do") {
  compare_layer_rates("gpt2");
  compare_layer_rates("llama");
}

/// The keys of PEFT's LoraConfig.
model::Lora lora_of(const nlohmann::json& keys) {
  model::Lora lora{.rank = keys["r"], .alpha = keys["lora_alpha"], .rslora = keys.value("use_rslora", false)};
  const auto& targets = keys["target_modules"];
  lora.targets = targets.is_array() ? targets.get<std::vector<std::string>>() : std::vector<std::string>{targets};
  return lora;
}

void compare_adapters(const std::string& arch) {
  const std::string data = std::string(KOZERO_TEST_DATA) + "/";
  const auto base = read_record(data + arch);
  const auto record = read_record(data + "lora_" + arch);
  model::Config config = config_of(base);
  config.lora = lora_of(record["lora"]);
  Training training(base, config);
  REQUIRE(base["tensors"].size() + record["tensors"].size() == training.table().tensors().size());
  std::ifstream base_file(data + arch + ".bin", std::ios::binary);
  std::ifstream file(data + "lora_" + arch + ".bin", std::ios::binary);
  training.set(read_tensors(base_file, training.table(), base["tensors"]));
  training.set(read_tensors(file, training.table(), record["tensors"]));
  const Values last = read_tensors(file, training.table(), record["tensors"]);
  for (std::size_t step = 0; step < record["losses"].size(); ++step) {
    const double loss = training.forward_backward(step);
    CHECK(loss == Catch::Approx(record["losses"][step].get<double>()).epsilon(1e-6));
    training.update(step);
  }
  Values ours = training.weights();
  for (std::size_t row = 0; row < ours.size(); ++row) {
    if (!training.table().rows()[row].trainable) ours[row].clear();
  }
  check_close(training.table(), ours, last, 0.0F, 1e-6F);
}

TEST_CASE("adapters train as PEFT's do: GPT-2, Llama, Qwen2 by rsLoRA, Qwen3 in part") {
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
    INFO(arch);
    compare_adapters(arch);
  }
}

TEST_CASE("GPT-2 trains as PyTorch does") { compare("gpt2"); }

TEST_CASE("GPT-2 without biases trains as PyTorch does") { compare("gpt2_without_biases"); }

TEST_CASE("with the vocabulary in blocks, tied or not, both train as PyTorch does") {
  compare("gpt2", 24);
  compare("llama", 16);
}

TEST_CASE("Llama with grouped queries, clipped, trains as PyTorch does") { compare("llama"); }

TEST_CASE("Qwen2, its biases too, trains as PyTorch does") { compare("qwen2"); }

TEST_CASE("Qwen3 with stretched RoPE trains as PyTorch does") { compare("qwen3"); }

}  // namespace
}  // namespace kozero::tests
