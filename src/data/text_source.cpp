// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_source.cpp: the source data.text: rank 0 makes the tokens, or finds them in the cache; all ranks read them there.
#include <fmt/format.h>
#include <filesystem>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_cache.hpp>
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

std::shared_ptr<const TokenShards> shards_of(const TokenSplit& split, std::int64_t vocab) {
  return split.files.empty() ? nullptr : std::make_shared<const TokenShards>(split.files, vocab);
}

std::unique_ptr<SampleSource> all_windows(const std::shared_ptr<const TokenShards>& shards, std::int64_t seq) {
  if (shards == nullptr || shards->num_tokens() < 2) return nullptr;
  return token_samples(shards, seq, 0, windows_of(*shards, seq));
}

std::optional<double> bytes_per_token(const TokenSplit& split) {
  if (split.tokens == 0) return std::nullopt;
  return static_cast<double>(split.bytes) / static_cast<double>(split.tokens);
}

}  // namespace

std::int64_t vocab_of_text(const io::Deck& deck) {
  if (deck.data.tokenizer == "bpe") return bpe_vocab(deck);
  if (const auto size = io::bpe_size(deck.data.tokenizer)) return *size;
  return io::make_tokenizer(deck.data.tokenizer)->vocab_size();
}

DataSet open_text(const OpenOrder& given) {
  const io::Deck& deck = given.deck;
  const PrepareOrder order{deck.data.text, tokenizer_spec(deck), deck.data.val_fraction, token_cache_of(deck),
                           learned_split(deck)};
  PreparedTokens found;  // rank 0's
  const std::string folder = distributed::from_first_rank(given.comm, [&] {
    found = prepare_in_cache(order, [](const std::string& line) { distributed::print_notice(escaped(line)); });
    return std::filesystem::absolute(found.folder).lexically_normal().string();
  });
  const PreparedTokens prepared = read_prepared(folder);
  DataSet data;
  data.tokenizer = io::make_tokenizer(prepared.tokenizer_file);
  data.vocab = prepared.vocab;
  data.train_shards = shards_of(prepared.train, prepared.vocab);
  data.validation_shards = shards_of(prepared.val, prepared.vocab);
  data.train = all_windows(data.train_shards, given.seq);
  if (data.train == nullptr) {
    throw Error(Failure::deck,
                fmt::format("data.text holds {} training tokens: nothing to predict", prepared.train.tokens));
  }
  data.validation = all_windows(data.validation_shards, given.seq);
  data.train_bytes_per_token = bytes_per_token(prepared.train);
  data.validation_bytes_per_token = bytes_per_token(prepared.val);
  data.description =
      fmt::format("{} + {} tokens ({}) of {:.2f} MB text", prepared.train.tokens, prepared.val.tokens,
                  prepared.tokenizer, static_cast<double>(prepared.train.bytes + prepared.val.bytes) / 1e6);
  data.description += fmt::format(" {} {}", found.reused ? "from" : "now in", found.folder);
  if (data.tokenizer->end_of_text() >= 0) {
    data.description += fmt::format("; each file begins with end-of-text (id {})", data.tokenizer->end_of_text());
  }
  for (const auto& note : notes_on(order, found)) data.description += "; " + note;
  return data;
}

}  // namespace kozero::data
