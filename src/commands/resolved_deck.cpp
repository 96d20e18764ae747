// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/utf8.hpp>

#include "initial_model.hpp"
#include "resolved_deck.hpp"

namespace kozero::commands {

namespace {

/// The same file from any working directory. A path that TOML cannot hold stays as it is.
void make_absolute(std::string& path) {
  const std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  if (io::utf8_prefix(whole) == whole.size()) path = whole;
}

/// Paths of data, tokenizer and other inputs, so that the deck can be read from any working directory.
void make_paths_absolute(io::Deck& deck) {
  for (auto& path : deck.data.text) make_absolute(path);
  for (auto& path : deck.data.tokens) make_absolute(path);
  const std::string& tokenizer = deck.data.tokenizer;
  if (tokenizer != "bytes" && tokenizer != "bpe" && !tokenizer.starts_with("bpe:")) make_absolute(deck.data.tokenizer);
  if (deck.run.tuning != "none") make_absolute(deck.run.tuning);
  if (deck.model.init != kRandom) make_absolute(deck.model.init);
}

}  // namespace

io::Deck resolved_deck(io::Deck deck, const train::Settings& settings, const std::string& folder) {
  const model::Config& config = settings.model;
  const auto fill = [&](const std::string& key, std::int64_t& member, std::int64_t value) {
    if (value == 0 || member == value) return;
    member = value;
    deck.origins["model." + key] = "derived";
  };
  if (config.arch != "linear") {
    fill("layers", deck.model.layers, config.layers);
    fill("heads", deck.model.heads, config.heads);
    fill("vocab", deck.model.vocab, config.vocab);
    fill("seq", deck.model.seq, config.seq);
  }
  if (config.rotary) {
    fill("kv_heads", deck.model.kv_heads, config.kv_heads);
    fill("head_dim", deck.model.head_dim, config.head_dim);
  }
  fill("dim", deck.model.dim, config.dim);
  fill("ffn", deck.model.ffn, config.ffn);
  make_paths_absolute(deck);
  deck.run.dir = folder;
  return deck;
}

std::string model_json(const model::Config& config) {
  nlohmann::ordered_json json = {{"arch", config.arch},
                                 {"layers", config.layers},
                                 {"dim", config.dim},
                                 {"heads", config.heads},
                                 {"kv_heads", config.kv_heads},
                                 {"head_dim", config.head_dim},
                                 {"ffn", config.ffn},
                                 {"vocab", config.vocab},
                                 {"seq", config.seq},
                                 {"tie_embeddings", config.tie_embeddings},
                                 {"rope_theta", config.rope_theta},
                                 {"norm_eps", config.norm_eps}};
  if (config.qkv_bias) json["qkv_bias"] = true;
  if (config.qk_norm) json["qk_norm"] = true;
  const model::RopeScaling& scaling = config.rope_scaling;
  if (scaling.factor != 1.0F) {
    json["rope_scaling"] = {{"factor", scaling.factor},
                            {"low_freq_factor", scaling.low_freq_factor},
                            {"high_freq_factor", scaling.high_freq_factor},
                            {"original_seq", scaling.original_seq}};
  }
  return json.dump();
}

namespace {

void read_scaling(const nlohmann::json& json, model::RopeScaling& scaling) {
  json.at("factor").get_to(scaling.factor);
  json.at("low_freq_factor").get_to(scaling.low_freq_factor);
  json.at("high_freq_factor").get_to(scaling.high_freq_factor);
  json.at("original_seq").get_to(scaling.original_seq);
}

}  // namespace

model::Config config_of(const std::string& model_json, const std::string& path) {
  model::Config config;
  try {
    const auto json = nlohmann::json::parse(model_json);
    json.at("arch").get_to(config.arch);
    json.at("layers").get_to(config.layers);
    json.at("dim").get_to(config.dim);
    json.at("heads").get_to(config.heads);
    json.at("kv_heads").get_to(config.kv_heads);
    json.at("head_dim").get_to(config.head_dim);
    json.at("ffn").get_to(config.ffn);
    json.at("vocab").get_to(config.vocab);
    json.at("seq").get_to(config.seq);
    json.at("tie_embeddings").get_to(config.tie_embeddings);
    json.at("rope_theta").get_to(config.rope_theta);
    json.at("norm_eps").get_to(config.norm_eps);
    config.qkv_bias = json.value("qkv_bias", false);
    config.qk_norm = json.value("qk_norm", false);
    if (json.contains("rope_scaling")) read_scaling(json["rope_scaling"], config.rope_scaling);
    return model::resolved(config);
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, path + ": its description of the model: " + problem.what());
  } catch (const Error& problem) {
    throw Error(Failure::input, path + ": its description of the model: " + problem.what());
  }
}

}  // namespace kozero::commands
