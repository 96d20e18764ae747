// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_source.cpp: the sources data.text and data.source: rank 0 makes the tokens, or finds them in the cache; all
// ranks read them there.
#include <fmt/format.h>
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
  return {deck.data.text_field, parse_filter(filter, key),
          chat_template_of(deck.data.chat_template, deck.data.tokenizer), deck.data.on_bad_document == "skip"};
}

PrepareOrder order_of(const io::Deck& deck) {
  PrepareOrder order{deck.data.text, tokenizer_spec(deck), deck.data.val_fraction, token_cache_of(deck),
                     learned_split(deck)};
  order.rules = rules_of(deck, deck.data.filter, "data.filter");
  order.deduplicate = deck.data.deduplicate;
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
struct Mixture {
  std::vector<std::size_t> order;  ///< of shards; empty: each once
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
  std::string text;  ///< "; an epoch has 2 x data.source[0] (300 tokens), 1 x data.source[1] (500 tokens)"
};

Mixture mixture_of(const io::Deck& deck, const PreparedTokens& prepared) {
  if (deck.data.source.empty()) return {{}, prepared.train.tokens, prepared.train.bytes, ""};
  require(prepared.train_sources.size() == deck.data.source.size(), "tokens of another number of sources");
  Mixture mixture;
  std::size_t first = 0;
  for (std::size_t i = 0; i < deck.data.source.size(); ++i) {
    const TokenSplit& part = prepared.train_sources[i];
    const std::int64_t repeat = deck.data.source[i].repeat;
    for (std::int64_t turn = 0; turn < repeat; ++turn) {
      for (std::size_t file = 0; file < part.files.size(); ++file) mixture.order.push_back(first + file);
    }
    first += part.files.size();
    mixture.tokens += repeat * part.tokens;
    mixture.bytes += repeat * part.bytes;
    mixture.text +=
        fmt::format("{} {} x {} ({} tokens)", i == 0 ? "; an epoch has" : ",", repeat, key_of(i), part.tokens);
  }
  return mixture;
}

std::shared_ptr<const TokenShards> shards_of(const TokenSplit& split, std::int64_t vocab,
                                             const std::vector<std::size_t>& order = {}) {
  return split.files.empty() ? nullptr : std::make_shared<const TokenShards>(split.files, vocab, order);
}

/// The sequences of all tokens; null if there is nothing to predict.
std::unique_ptr<SampleSource> samples_of(const OpenOrder& order, const std::shared_ptr<const TokenShards>& shards,
                                         Token document_start) {
  if (shards == nullptr || shards->num_tokens() < 2) return nullptr;
  if (packs_documents(order.deck)) {
    return packed_samples(shards, order.seq, shards->documents(document_start), shards->num_tokens(), document_start);
  }
  return token_samples(shards, order.seq, 0, windows_of(*shards, order.seq), document_start);
}

std::optional<double> bytes_per_token(std::int64_t bytes, std::int64_t tokens) {
  if (tokens == 0) return std::nullopt;
  return static_cast<double>(bytes) / static_cast<double>(tokens);
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
  const Mixture mixture = mixture_of(deck, prepared);
  DataSet data;
  data.tokenizer = io::make_tokenizer(prepared.tokenizer_file);
  data.vocab = prepared.vocab;
  data.train_shards = shards_of(prepared.train, prepared.vocab, mixture.order);
  data.validation_shards = shards_of(prepared.val, prepared.vocab);
  require_documents(data.tokenizer.get(), deck);
  const Token document_start = data.tokenizer->end_of_text();
  data.train = samples_of(given, data.train_shards, document_start);
  if (data.train == nullptr) {
    throw Error(Failure::deck,
                fmt::format("{} holds {} training tokens: nothing to predict", key_of_data(deck), mixture.tokens));
  }
  data.validation = samples_of(given, data.validation_shards, document_start);
  data.train_bytes_per_token = bytes_per_token(mixture.bytes, mixture.tokens);
  data.validation_bytes_per_token = bytes_per_token(prepared.val.bytes, prepared.val.tokens);
  data.description =
      fmt::format("{} + {} tokens ({}) of {:.2f} MB text", prepared.train.tokens, prepared.val.tokens,
                  prepared.tokenizer, static_cast<double>(prepared.train.bytes + prepared.val.bytes) / 1e6);
  data.description += fmt::format(" {} {}", found.reused ? "from" : "now in", found.folder);
  if (data.tokenizer->end_of_text() >= 0) {
    data.description += fmt::format("; each document begins with end-of-text (id {})", data.tokenizer->end_of_text());
  }
  data.description += mixture.text;
  for (const auto& note : notes_on(order, found)) data.description += "; " + note;
  return data;
}

}  // namespace kozero::data
