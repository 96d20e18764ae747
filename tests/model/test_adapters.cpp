// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_adapters.cpp: low-rank adapters: their tensors and units, the base's output at the beginning, the output of
// merged weights afterwards, decoding with a cache, and targets that name nothing.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/model/adapters.hpp>

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

std::vector<model::Config> networks() {
  return {tiny_gpt2(true), tiny_gpt2(false, 0.1F), tiny_llama(false), tiny_qwen2(true), tiny_qwen3(true)};
}

model::Config adapted(model::Config config, std::vector<std::string> targets = {model::kAllLinear}) {
  config.lora = {.rank = 3, .alpha = 5.0F, .targets = std::move(targets)};
  return config;
}

int row_named(const ParameterTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.rows(), name, &Parameter::name);
  return found == table.rows().end() ? -1 : static_cast<int>(found - table.rows().begin());
}

/// The names of the linear maps with adapters.
std::vector<std::string> modules(const ParameterTable& table) {
  std::vector<std::string> names;
  for (const Tensor& tensor : table.tensors()) {
    if (tensor.name.ends_with(model::kLoraA)) {
      names.push_back(tensor.name.substr(0, tensor.name.size() - std::string(model::kLoraA).size()));
    }
  }
  return names;
}

/// W + s B A in W's orientation.
std::vector<float> merged(const TinyModel& tiny, const std::string& module, const model::Lora& lora,
                          bool inputs_first) {
  const ParameterTable& table = tiny.model->parameters();
  std::vector<float> w = tiny.access.weight(row_named(table, module + ".weight"));
  const std::vector<float> a = tiny.access.weight(row_named(table, module + model::kLoraA));
  const std::vector<float> b = tiny.access.weight(row_named(table, module + model::kLoraB));
  const auto r = static_cast<std::size_t>(lora.rank);
  const std::size_t inputs = a.size() / r, outputs = b.size() / r;
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < inputs; ++i) {
      double sum = 0.0;
      for (std::size_t k = 0; k < r; ++k) sum += double{b[o * r + k]} * double{a[k * inputs + i]};
      w[inputs_first ? i * outputs + o : o * inputs + i] += static_cast<float>(double{lora.scale()} * sum);
    }
  }
  return w;
}

/// The base without adapters, with the base weights of `tiny`.
void copy_base(const TinyModel& tiny, TinyModel& base) {
  const auto& rows = base.model->parameters().rows();
  for (int row = 0; row < std::ssize(rows); ++row) {
    REQUIRE(tiny.model->parameters().row(row).name == rows[static_cast<std::size_t>(row)].name);
    base.access.set_weight(row, tiny.access.weight(row));
  }
}

std::string refusal(const model::Config& config) {
  try {
    static_cast<void>(model::make_model<float>(config));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("adapters lie in units behind the base, whose units and rows keep their numbers") {
  for (model::Config config : networks()) {
    config.layers = 5;
    config.blocks_in_unit = 2;
    const auto plain = model::make_model<float>(config);
    const auto with = model::make_model<float>(adapted(config));
    const ParameterTable& base = plain->parameters();
    const ParameterTable& table = with->parameters();
    CAPTURE(config.arch);
    CHECK(table.num_units() == base.num_units() + 3);
    CHECK(table.has_adapters());
    CHECK_FALSE(base.has_adapters());
    for (int row = 0; row < std::ssize(base.rows()); ++row) {
      CHECK(table.row(row).name == base.row(row).name);
      CHECK(table.row(row).unit == base.row(row).unit);
      CHECK(table.row(row).offset == base.row(row).offset);
      CHECK_FALSE(table.row(row).trainable);
    }
    const std::size_t maps = config.arch == "gpt2" ? 4 : 7;
    CHECK(modules(table).size() == 5 * maps);
    CHECK(table.first_trainable_unit() == table.unit(base.num_units()).beside);
    CHECK(table.unit(table.num_units() - 1).name == "adapters of block.4");
    CHECK(table.num_stored() == table.num_trainable());
    CHECK(table.num_parameters() == base.num_parameters() + table.num_trainable());
    CHECK(table.without_base().extent() == table.without_frozen_units().extent());
  }
}

TEST_CASE("targets name linear maps by the end of their names") {
  const auto of = [](const model::Config& config, std::vector<std::string> targets) {
    return modules(model::make_model<float>(adapted(config, std::move(targets)))->parameters());
  };
  CHECK(of(tiny_llama(true), {"q_proj", "v_proj"}) ==
        std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                                 "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"});
  CHECK(of(tiny_llama(true), {"layers.1.mlp.*"}) == std::vector<std::string>{"model.layers.1.mlp.gate_proj",
                                                                             "model.layers.1.mlp.up_proj",
                                                                             "model.layers.1.mlp.down_proj"});
  CHECK(of(tiny_gpt2(true), {"transformer.h.0.attn.c_attn"}) == std::vector<std::string>{"h.0.attn.c_attn"});
  CHECK(of(tiny_gpt2(true), {"attn.c_proj", "h.1.mlp.c_fc"}) ==
        std::vector<std::string>{"h.0.attn.c_proj", "h.1.attn.c_proj", "h.1.mlp.c_fc"});
  CHECK(refusal(adapted(tiny_llama(true), {"q_proj", "qproj"})) ==
        "model.lora.targets: \"qproj\" is the name of no linear map of a block; did you mean \"q_proj\"?");
  CHECK(
      refusal(adapted(tiny_llama(true), {"lm_head"})).starts_with("model.lora.targets: \"lm_head\" is the name of no"));
  CHECK(
      refusal(adapted(tiny_gpt2(true), {"zzzzzzzzzz"})) ==
      "model.lora.targets: \"zzzzzzzzzz\" is the name of no linear map of a block; accepted: \"all-linear\" and names "
      "such as \"c_attn\"");
}

TEST_CASE("with B = 0 the loss has the base's bits; with other B it is that of the merged weights, decoded ones too") {
  for (const model::Config& config : networks()) {
    CAPTURE(config.arch);
    const bool is_gpt2 = config.arch == "gpt2";
    TinyModel tiny(adapted(config), 2);
    TinyModel base(config, 2);
    copy_base(tiny, base);
    const auto batch = TokenBatch::noise(2, 7, 19, 3);
    const auto names = modules(tiny.model->parameters());
    const double with_adapters = tiny.model->evaluate(tiny.access, batch.view());
    CHECK(std::abs(with_adapters - base.model->evaluate(base.access, batch.view())) > 1e-3);
    for (const std::string& module : names) {
      base.access.set_weight(row_named(base.model->parameters(), module + ".weight"),
                             merged(tiny, module, tiny.model->config().lora, is_gpt2));
    }
    CHECK(std::abs(with_adapters - base.model->evaluate(base.access, batch.view())) < 1e-4);
    copy_base(tiny, base);
    for (const std::string& module : names) {
      const int row = row_named(tiny.model->parameters(), module + model::kLoraB);
      tiny.access.set_weight(row,
                             std::vector<float>(static_cast<std::size_t>(tiny.model->parameters().row(row).extent())));
    }
    CHECK(tiny.model->evaluate(tiny.access, batch.view()) == base.model->evaluate(base.access, batch.view()));
  }
}

}  // namespace kozero::tests
