// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/exchange/imported_deck.hpp>

#include "shortest.hpp"

namespace kozero::exchange {
namespace {

/// Sets a key and says where its value came from.
class Filler {
 public:
  explicit Filler(io::Deck& deck) : deck_(deck) {}
  template <class T>
  void set(const std::string& key, T& member, const T& value, const char* origin = "config.json") {
    member = value;
    deck_.origins[key] = origin;
  }

 private:
  io::Deck& deck_;
};

void fill_model(io::Deck& deck, const model::Config& config) {
  Filler fill(deck);
  io::ModelKeys& keys = deck.model;
  fill.set("model.arch", keys.arch, config.arch);
  fill.set("model.layers", keys.layers, config.layers);
  fill.set("model.dim", keys.dim, config.dim);
  fill.set("model.heads", keys.heads, config.heads);
  fill.set("model.ffn", keys.ffn, config.ffn);
  fill.set("model.vocab", keys.vocab, config.vocab);
  fill.set("model.seq", keys.seq, config.seq);
  fill.set("model.tie_embeddings", keys.tie_embeddings, config.tie_embeddings);
  fill.set("model.norm_eps", keys.norm_eps, shortest(config.norm_eps));
  if (!config.rotary) return;
  fill.set("model.kv_heads", keys.kv_heads, config.kv_heads);
  fill.set("model.head_dim", keys.head_dim, config.head_dim);
  fill.set("model.rope_theta", keys.rope_theta, shortest(config.rope_theta));
  const model::RopeScaling& scaling = config.rope_scaling;
  fill.set("model.rope_scaling", keys.rope_scaling,
           {shortest(scaling.factor), shortest(scaling.low_freq_factor), shortest(scaling.high_freq_factor),
            scaling.original_seq});
  fill.set("model.qkv_bias", keys.qkv_bias, config.qkv_bias);
  fill.set("model.qk_norm", keys.qk_norm, config.qk_norm);
}

}  // namespace

io::Deck imported_deck(const model::Config& config, const std::string& run_dir, const std::string& tokenizer) {
  io::Deck deck;
  fill_model(deck, config);
  Filler fill(deck);
  fill.set("run.dir", deck.run.dir, run_dir, "import");
  fill.set("run.steps", deck.run.steps, std::int64_t{1}, "import");
  fill.set("train.global_batch", deck.train.global_batch, std::int64_t{8}, "import");
  fill.set("train.micro_batch", deck.train.micro_batch, std::int64_t{1}, "import");
  fill.set("data.val_fraction", deck.data.val_fraction, 0.0, "import");
  if (!tokenizer.empty()) {
    fill.set("data.text", deck.data.text, {"give-data.text"}, "import: names no data");
    fill.set("data.tokenizer", deck.data.tokenizer, tokenizer, "import");
  } else {
    fill.set("data.tokens", deck.data.tokens, {"give-data.tokens"}, "import: names no data");
  }
  return deck;
}

}  // namespace kozero::exchange
