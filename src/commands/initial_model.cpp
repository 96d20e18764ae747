// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// initial_model.cpp: completes the deck by the weights' shape and tokenizer, and loads the weights.
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <variant>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/huggingface/import.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/readable.hpp"
#include "io/text/tokenizer.hpp"
#include "src/commands/initial_model.hpp"
#include "src/commands/weights_source.hpp"

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

namespace {

std::string named(const io::Deck& deck) { return "model.init = \"" + deck.model.init + "\""; }

/// Copies the keys of the model that `from` gives and `deck` leaves out. A preset speaks for all of them.
void fill_silent_keys(io::Deck& deck, io::Deck from, const std::string& origin) {
  if (deck.model.preset != "none") return;
  for (const auto& row : io::deck_schema()) {
    if (io::section_of(row.key) != "model" || deck.is_set(row.key) || !from.is_set(row.key)) continue;
    const io::DeckValue value = row.value_in(from);
    std::visit(
        [&](auto* into) {
          using Pointer = decltype(into);
          *into = *std::get<Pointer>(value);
        },
        row.value_in(deck));
    deck.origins[row.key] = origin;
  }
}

void refuse_disagreement(const io::Deck& deck, model::Config theirs) {
  const model::Config mine = train::model_config(deck, 0);
  if (mine.arch != "gpt2") theirs.seq = mine.seq;
  io::CheckpointRecord saved;
  saved.model = model_json(theirs);
  io::CheckpointRecord now;
  now.model = model_json(mine);
  std::string differences;
  for (const auto& difference : train::disagreements(saved, now)) {
    differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (differences.empty()) return;
  throw Error(Failure::deck, named(deck) + ": the deck disagrees with it: " + differences +
                                 "; keys that are left out are taken from there");
}

/// The ids of data.tokenizer, 0 where only the text tells.
std::int64_t ids_of(const std::string& tokenizer) {
  if (tokenizer == "bpe") return 0;
  if (const auto size = io::bpe_size(tokenizer)) return *size;
  return io::make_tokenizer(tokenizer)->vocab_size();
}

void choose_tokenizer(io::Deck& deck, const WeightsSource& source) {
  const bool reads_text = !deck.data.text.empty();
  if (!reads_text && deck.data.tokens.empty()) return;
  if (!deck.is_set("data.tokenizer")) {
    if (source.tokenizer.empty() && reads_text) {
      throw Error(Failure::deck, named(deck) + ": no tokenizer comes with it: " + source.no_tokenizer +
                                     ": give data.tokenizer, or data.tokens instead of data.text");
    }
    if (source.tokenizer.empty()) return;
    deck.data.tokenizer = source.tokenizer;
    deck.origins["data.tokenizer"] = "model.init";
  }
  const std::int64_t ids = ids_of(deck.data.tokenizer);
  if (deck.model.vocab == 0 || ids <= deck.model.vocab) return;
  throw Error(Failure::deck,
              fmt::format("data.tokenizer = \"{}\": its {} ids are more than the {} of {}; left out, the model's own "
                          "tokenizer is taken",
                          deck.data.tokenizer, ids, deck.model.vocab, named(deck)));
}

}  // namespace

io::Deck with_initial_model(io::Deck deck, dist::Communicator& comm) {
  if (deck.model.init == kRandom) return deck;
  const WeightsSource source = find_weights(deck.model.init, comm);
  dist::agreed(comm, [&] {
    const model::Config shape = shape_of(source);
    fill_silent_keys(deck, huggingface::imported_deck(shape, "", ""), "model.init");
    io::check_deck(deck);
    refuse_disagreement(deck, shape);
    choose_tokenizer(deck, source);
  });
  return deck;
}

std::string begin_weights(const io::Deck& deck, train::Assembly& assembly, dist::Communicator& comm) {
  if (deck.model.init == kRandom) {
    assembly.state().initialise(static_cast<std::uint64_t>(deck.run.seed));
    return "";
  }
  const WeightsSource source = find_weights(deck.model.init, comm);
  load(source, assembly.network().config(), assembly.network().parameters(), assembly.state().weights(), comm);
  return fmt::format("init         weights of {} ({}), a fresh optimizer", source.path, name_of(source.kind));
}

}  // namespace kozero::commands
