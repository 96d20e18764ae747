// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_config.cpp: derived shapes, presets with their parameter counts, refusals, and the tensors' table.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include <kozero/core/error.hpp>
#include <kozero/model/model.hpp>

namespace kozero::tests {
namespace {

using model::Config;
using model::resolved;
using model::with_preset;

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.failure() == Failure::deck);
    return error.what();
  }
  return "accepted";
}

std::int64_t parameters_of(const std::string& preset) {
  return model::make_model<float>(with_preset(Config{}, preset))->parameters().num_parameters();
}

TEST_CASE("silent keys are derived") {
  const Config gpt2 = resolved({.arch = "gpt2", .dim = 30, .heads = 3});
  CHECK(gpt2.ffn == 120);
  CHECK(gpt2.kv_heads == 3);
  CHECK(gpt2.head_dim == 10);
  const Config llama = resolved({.arch = "llama", .dim = 512, .heads = 8, .kv_heads = 2});
  CHECK(llama.ffn == 1408);
  CHECK(llama.head_dim == 64);
  CHECK(resolved({.arch = "llama", .dim = 13, .heads = 4, .head_dim = 6}).kv_heads == 4);
  CHECK(resolved({.arch = "linear", .dim = 5, .seq = 64}).seq == 1);
  CHECK(resolved({.arch = "linear", .dim = 5}).ffn == 5);
}

TEST_CASE("presets have the published parameter counts") {
  CHECK(parameters_of("gpt2-124m") == 124439808);
  CHECK(parameters_of("gpt2-350m") == 354823168);
  CHECK(parameters_of("gpt2-774m") == 774030080);
  CHECK(parameters_of("gpt2-1558m") == 1557611200);
  CHECK(parameters_of("llama-1b") == 1235814400);
  CHECK(parameters_of("llama-8b") == 8030261248);
  CHECK(parameters_of("llama-13b") == 13015864320);
  CHECK(model::preset_names().size() == 10);
}

TEST_CASE("small presets are shapes for any arch") {
  const Config tiny = with_preset({.arch = "llama", .vocab = 300, .tie_embeddings = false}, "tiny");
  CHECK(tiny.arch == "llama");
  CHECK(tiny.vocab == 300);
  CHECK_FALSE(tiny.tie_embeddings);
  CHECK(resolved(tiny).ffn == 384);
}

TEST_CASE("impossible values are refused, naming key, value and what is accepted") {
  const auto refused = [](const Config& config) { return refusal([&] { resolved(config); }); };
  CHECK(refused({.arch = "gtp2"}) ==
        "model.arch = \"gtp2\": accepted: gpt2, llama, linear; did you mean \"gpt2\"?");
  CHECK(refused({.dim = 64, .heads = 5}) == "model.heads = 5: accepted: a divisor of model.dim = 64");
  CHECK(refused({.layers = 0}) == "model.layers = 0: accepted: a whole number from 1 to 65536");
  CHECK(refused({.heads = 2, .kv_heads = 1}) == "model.kv_heads = 1: accepted: model.heads = 2 under arch gpt2");
  CHECK(refused({.dim = 64, .heads = 2, .head_dim = 16}) ==
        "model.head_dim = 16: accepted: dim / heads = 32 under arch gpt2");
  CHECK(refused({.arch = "llama", .heads = 4, .kv_heads = 3}) ==
        "model.kv_heads = 3: accepted: a divisor of model.heads = 4");
  CHECK(refused({.arch = "llama", .dim = 15, .heads = 3}) ==
        "model.head_dim = 5: accepted: an even number: RoPE turns pairs of channels");
  CHECK(refused({.arch = "llama", .dim = 63, .heads = 2}) ==
        "model.heads = 2: accepted: a divisor of model.dim = 63, or model.head_dim given");
  CHECK_THAT(refused({.arch = "llama", .dropout = 0.1F}), Catch::Matchers::StartsWith("model.dropout = 0.1"));
  CHECK_THAT(refused({.dropout = 1.0F}), Catch::Matchers::StartsWith("model.dropout = 1"));
  CHECK_THAT(refused({.vocab = std::int64_t{1} << 31}), Catch::Matchers::StartsWith("model.vocab = 2147483648"));
  CHECK_THAT(refused({.norm_eps = 0.0F}), Catch::Matchers::StartsWith("model.norm_eps"));
  CHECK_THAT(refusal([] { with_preset(Config{}, "gpt2-124"); }),
             Catch::Matchers::EndsWith("did you mean \"gpt2-124m\"?"));
}

TEST_CASE("biases and norms do not decay, q, k, v and gate, up lie as one matrix") {
  const auto gpt2 = model::make_model<float>({.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4});
  for (const auto& row : gpt2->parameters().rows()) CHECK(row.decay == (row.shape.size() == 2));
  CHECK(gpt2->parameters().rows()[2].name == "h.0.ln_1.weight");
  CHECK(gpt2->parameters().num_slots() == 3);

  const auto llama = model::make_model<float>(
      {.arch = "llama", .layers = 1, .dim = 12, .heads = 2, .kv_heads = 1, .ffn = 9, .vocab = 7, .seq = 4,
       .tie_embeddings = false});
  const auto& rows = llama->parameters().rows();
  CHECK(llama->parameters().num_slots() == 2);
  CHECK(rows[1].name == "model.layers.0.self_attn.q_proj.weight");
  CHECK(rows[2].offset == rows[1].offset + rows[1].extent());
  CHECK(rows[3].offset == rows[2].offset + rows[2].extent());
  CHECK(rows[4].offset % kAlignment == 0);
  CHECK(rows[6].offset == rows[5].offset + rows[5].extent());
}

TEST_CASE("flops of a token: 6 N + 6 L C T over the parameters that multiply") {
  const auto gpt2 = model::make_model<float>({.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4});
  CHECK(gpt2->flops_per_token() == 6.0 * (7 * 10 + 12 * 10 * 10) + 6.0 * 1 * 10 * 4);
  const auto untied = model::make_model<float>(
      {.arch = "gpt2", .layers = 1, .dim = 10, .heads = 2, .vocab = 7, .seq = 4, .tie_embeddings = false});
  CHECK(untied->flops_per_token() == gpt2->flops_per_token());
}

}  // namespace
}  // namespace kozero::tests
