// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "resolved_deck.hpp"

namespace kozero::commands {

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

}  // namespace kozero::commands
