// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_source.cpp: the sources data.text and data.source: rank 0 makes the tokens, or finds them in the cache; all
// ranks read them there.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_cache.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

/// The vocabulary size that `data.tokenizer = "bpe"` learns.
std::int64_t bpe_vocab(const io::Deck& deck) {
  if (deck.model.vocab > 0) return deck.model.vocab;
  if (deck.model.preset != "none") return vocab_of_preset(deck);
  throw Error(Failure::deck,
              "data.tokenizer = \"bpe\": give model.vocab, how many ids to learn, or write \"bpe:4096\"");
}

std::string tokenizer_spec(const io::Deck& deck) {
  return deck.data.tokenizer == "bpe" ? "bpe:" + std::to_string(bpe_vocab(deck)) : deck.data.tokenizer;
}

/// The split of a learned tokenizer: that of the network as which transformers loads the model. Llama with biases on
/// q, k and v is exported as Qwen2.
std::string learned_split(const io::Deck& deck) {
  return architecture(deck.model.qkv_bias ? "qwen2" : deck.model.arch).split;
}

std::string key_of(std::size_t source) { return fmt::format("data.source[{}]", source); }

DocumentRules rules_of(const io::Deck& deck, const std::string& filter, const std::string& key) {
  return {deck.data.text_field, parse_filter(filter, key), deck.data.on_bad_document == "skip"};
}

PrepareOrder order_of(const io::Deck& deck) {
  PrepareOrder order{deck.data.text, tokenizer_spec(deck), deck.data.val_fraction, token_cache_of(deck),
                     learned_split(deck)};
  order.rules = rules_of(deck, deck.data.filter, "data.filter");
  order.deduplicate = deck.data.deduplicate;
  order.splits_sources = deck.data.is_mixture();
  for (const auto& source : deck.data.source) {
    const std::string key = key_of(order.sources.size());
    const bool has_own = !source.filter.empty();
    order.sources.push_back(
        {source.text, key + ".text",
         rules_of(deck, has_own ? source.filter : deck.data.filter, has_own ? key + ".filter" : "data.filter")});
  }
  return order;
}

/// What an epoch has: each source's training part, `repeat` times. One source of data.text is the whole.
struct Epoch {
  std::vector<std::size_t> order;  ///< of shards; empty: each once
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
  std::string text;  ///< "; an epoch has 2 x data.source[0] (300 tokens), 1 x data.source[1] (500 tokens)"
};

Epoch epoch_of(const io::Deck& deck, const PreparedTokens& prepared) {
  if (deck.data.source.empty()) return {{}, prepared.train.tokens, prepared.train.bytes, ""};
  require(prepared.train_sources.size() == deck.data.source.size() &&
              prepared.val_sources.size() == deck.data.source.size(),
          "tokens of another number of sources");
  Epoch epoch;
  std::size_t first = 0;
  for (std::size_t i = 0; i < deck.data.source.size(); ++i) {
    const TokenSplit& part = prepared.train_sources[i];
    const std::int64_t repeat = deck.data.source[i].repeat;
    for (std::int64_t turn = 0; turn < repeat; ++turn) {
      for (std::size_t file = 0; file < part.files.size(); ++file) epoch.order.push_back(first + file);
    }
    first += part.files.size();
    epoch.tokens += repeat * part.tokens;
    epoch.bytes += repeat * part.bytes;
    if (deck.data.is_mixture()) continue;  // the banner describes it by mixture_text()
    const std::string& name = deck.data.source[i].name;
    epoch.text += fmt::format("{} {} x {} ({} tokens)", i == 0 ? "; an epoch has" : ",", repeat,
                              name.empty() ? key_of(i) : name, part.tokens);
  }
  return epoch;
}

std::shared_ptr<const TokenShards> shards_of(const TokenSplit& split, std::int64_t vocab,
                                             const std::vector<std::size_t>& order = {}) {
  return split.files.empty() ? nullptr : std::make_shared<const TokenShards>(split.files, vocab, order);
}

/// All windows of a part of the shards; null if it has less than two tokens.
std::unique_ptr<SampleSource> windows_in(const std::shared_ptr<const TokenShards>& shards, std::int64_t seq,
                                         Token document_start, const Share& part) {
  if (shards == nullptr || part.count < 2) return nullptr;
  return token_samples(shards, seq, 0, windows_of(part.count, seq), document_start, part);
}

std::unique_ptr<SampleSource> all_windows(const std::shared_ptr<const TokenShards>& shards, std::int64_t seq,
                                          Token document_start) {
  return windows_in(shards, seq, document_start, {0, shards == nullptr ? 0 : shards->num_tokens()});
}

std::optional<double> bytes_per_token(std::int64_t bytes, std::int64_t tokens) {
  if (tokens == 0) return std::nullopt;
  return static_cast<double>(bytes) / static_cast<double>(tokens);
}

/// The mean over the sources that have one, by weight.
std::optional<double> weighted_bytes_per_token(const std::vector<SourceData>& sources,
                                               std::optional<double> SourceData::*bytes_per_token) {
  double sum = 0.0, weights = 0.0;
  for (const auto& source : sources) {
    if (!(source.*bytes_per_token)) continue;
    sum += source.weight * *(source.*bytes_per_token);
    weights += source.weight;
  }
  return weights == 0.0 ? std::nullopt : std::optional(sum / weights);
}

/// The sources of a deck, each with the windows of its own tokens.
std::vector<SourceData> sources_of(const io::DataKeys& keys, const PreparedTokens& prepared, const DataSet& data,
                                   std::int64_t seq) {
  std::vector<SourceData> sources;
  Share train, val;
  const bool has_repeats = std::ranges::any_of(keys.source, [](const auto& source) { return source.repeat != 1; });
  for (std::size_t i = 0; i < keys.source.size(); ++i) {
    const TokenSplit& of_train = prepared.train_sources.at(i);
    const TokenSplit& of_val = prepared.val_sources.at(i);
    train.count = of_train.tokens;
    val.count = of_val.tokens;
    SourceData source;
    source.name = keys.name_of_source(i);
    source.weight = keys.source[i].share();
    source.epochs = keys.source[i].epochs;
    source.tokens = of_train.tokens;
    const Token start = data.tokenizer->end_of_text();
    if (!has_repeats) source.train = windows_in(data.train_shards, seq, start, train);
    source.validation = windows_in(data.validation_shards, seq, start, val);
    source.train_bytes_per_token = bytes_per_token(of_train.bytes, of_train.tokens);
    source.validation_bytes_per_token = bytes_per_token(of_val.bytes, of_val.tokens);
    sources.push_back(std::move(source));
    train.first += train.count;
    val.first += val.count;
  }
  return sources;
}

}  // namespace

std::int64_t vocab_of_text(const io::Deck& deck) {
  if (deck.data.tokenizer == "bpe") return bpe_vocab(deck);
  if (const auto size = io::bpe_size(deck.data.tokenizer)) return *size;
  return io::make_tokenizer(deck.data.tokenizer)->vocab_size();
}

DataSet open_text(const OpenOrder& given) {
  const io::Deck& deck = given.deck;
  PrepareOrder order = order_of(deck);
  PreparedTokens found;  // rank 0's
  order.say = [](const std::string& line) { distributed::print_notice(escaped(line)); };
  constexpr double kSeconds = 10.0;
  order.progress = [text = ProgressText(kSeconds, kSeconds)](std::int64_t done, std::int64_t all) mutable {
    if (const auto due = text.due(done, all)) distributed::print_notice("tokens: " + *due);
  };
  const std::string folder = distributed::from_first_rank(given.comm, [&] {
    found = prepare_in_cache(order);
    return std::filesystem::absolute(found.folder).lexically_normal().string();
  });
  const PreparedTokens prepared = read_prepared(folder);
  const Epoch epoch = epoch_of(deck, prepared);
  DataSet data;
  data.tokenizer = io::make_tokenizer(prepared.tokenizer_file);
  data.vocab = prepared.vocab;
  data.train_shards = shards_of(prepared.train, prepared.vocab, epoch.order);
  data.validation_shards = shards_of(prepared.val, prepared.vocab);
  data.train = all_windows(data.train_shards, given.seq, data.tokenizer->end_of_text());
  if (data.train == nullptr) {
    throw Error(Failure::deck,
                fmt::format("{} holds {} training tokens: nothing to predict", key_of_data(deck), epoch.tokens));
  }
  data.validation = all_windows(data.validation_shards, given.seq, data.tokenizer->end_of_text());
  data.train_bytes_per_token = bytes_per_token(epoch.bytes, epoch.tokens);
  data.sources = sources_of(deck.data, prepared, data, given.seq);
  data.validation_bytes_per_token = bytes_per_token(prepared.val.bytes, prepared.val.tokens);
  if (data.is_mixture()) {
    data.train = sources_in_turn(data.sources);
    data.train_bytes_per_token = weighted_bytes_per_token(data.sources, &SourceData::train_bytes_per_token);
    data.validation_bytes_per_token = weighted_bytes_per_token(data.sources, &SourceData::validation_bytes_per_token);
  }
  data.description =
      fmt::format("{} + {} tokens ({}) of {:.2f} MB text", prepared.train.tokens, prepared.val.tokens,
                  prepared.tokenizer, static_cast<double>(prepared.train.bytes + prepared.val.bytes) / 1e6);
  data.description += fmt::format(" {} {}", found.reused ? "from" : "now in", found.folder);
  if (data.tokenizer->end_of_text() >= 0) {
    data.description += fmt::format("; each document begins with end-of-text (id {})", data.tokenizer->end_of_text());
  }
  data.description += epoch.text;
  for (const auto& note : notes_on(order, found)) data.description += "; " + note;
  return data;
}

}  // namespace kozero::data
