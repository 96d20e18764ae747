// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_source.cpp: the sources data.text and data.source: rank 0 makes the tokens, or finds them in the cache; all
// ranks read them there.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/data/corpus_epoch.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_cache.hpp>
#include <kozero/distributed/agreement.hpp>
#include "src/data/document_formats.hpp"
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
  order.splits_sources = deck.data.is_mixture() || (deck.whole != nullptr && !deck.data.source.empty());
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

/// The sequences of a part of the shards; null if there is nothing to predict.
std::unique_ptr<SampleSource> samples_of(const OpenOrder& order, const std::shared_ptr<const TokenShards>& shards,
                                         Token document_start, const Share& part) {
  if (shards == nullptr || part.count < 2) return nullptr;
  if (!packs_documents(order.deck)) {
    return token_samples(shards, order.seq, 0, windows_of(part.count, order.seq), document_start, part);
  }
  const std::vector<std::int64_t> documents = shards->documents(document_start);
  const std::int64_t end = part.first + part.count;
  const auto first = std::ranges::lower_bound(documents, part.first);
  const auto last = std::ranges::lower_bound(documents, end);
  return packed_samples(shards, order.seq, std::span(first, last), end, document_start);
}

std::unique_ptr<SampleSource> samples_of(const OpenOrder& order, const std::shared_ptr<const TokenShards>& shards,
                                         Token document_start) {
  return samples_of(order, shards, document_start, {0, shards == nullptr ? 0 : shards->num_tokens()});
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

/// The sources of a deck, each with the sequences of its own tokens.
std::vector<SourceData> sources_of(const OpenOrder& order, const PreparedTokens& prepared, const DataSet& data) {
  const io::DataKeys& keys = order.deck.data;
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
    if (!has_repeats) source.train = samples_of(order, data.train_shards, start, train);
    source.validation = samples_of(order, data.validation_shards, start, val);
    if (prepared.chat_template.empty()) {
      source.train_bytes_per_token = bytes_per_token(of_train.bytes, of_train.tokens);
      source.validation_bytes_per_token = bytes_per_token(of_val.bytes, of_val.tokens);
    }
    sources.push_back(std::move(source));
    train.first += train.count;
    val.first += val.count;
  }
  return sources;
}

/// read_prepared() of what rank 0 made or found in its folder.
PreparedTokens read_tokens_of_rank_0(const std::string& folder, const OpenOrder& given) {
  try {
    return read_prepared(folder);
  } catch (const Error& problem) {
    if (given.comm.rank() == 0) throw;
    throw Error(
        problem.failure(),
        fmt::format("data.cache = \"{}\": rank {} on host {} does not read what rank 0 does: {}; give a folder on "
                    "a file system that all hosts share, under the same path",
                    token_cache_of(given.deck), given.comm.rank(), host_name(), problem.what()));
  }
}

/// The different characters of the text: those of the cached tokens or, if there are none, counted, once per text.
std::int64_t characters_of_text(const io::Deck& deck) {
  static std::map<std::string, std::int64_t> counted;  // by fingerprint
  const PrepareOrder order = order_of(deck);
  SkippedFiles skipped;
  const auto files = find_text(order.all_sources(), skipped);
  const std::string fingerprint = fingerprint_of(order, files);
  if (const auto found = counted.find(fingerprint); found != counted.end()) return found->second;
  const std::string entry = (std::filesystem::path(order.folder) / fingerprint).string();
  const FileCorpus corpus(files);
  return counted[fingerprint] = is_current(entry, fingerprint)
                                    ? read_prepared(entry).vocab
                                    : io::make_tokenizer(order.tokenizer, &corpus)->vocab_size();
}

}  // namespace

std::int64_t vocab_of_text(const io::Deck& deck) {
  if (deck.data.tokenizer == "bpe") return bpe_vocab(deck);
  if (deck.data.tokenizer == io::kCharacters) return characters_of_text(deck);
  if (const auto size = io::bpe_size(deck.data.tokenizer)) return *size;
  return io::make_tokenizer(deck.data.tokenizer)->vocab_size();
}

bool has_tokens(const io::Deck& deck) {
  if (deck.data.text.empty() && deck.data.source.empty()) return true;
  try {
    const PrepareOrder order = order_of(deck);
    SkippedFiles skipped;
    const std::string digits = fingerprint_of(order, find_text(order.all_sources(), skipped));
    return is_current((std::filesystem::path(order.folder) / digits).string(), digits);
  } catch (const Error&) {
    return false;  // a file is gone, for example
  } catch (const std::filesystem::filesystem_error&) {
    return false;
  }
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
  CorpusEpoch files;  // rank 0's
  std::string growth;
  const std::string folder = distributed::from_first_rank(given.comm, [&] {
    SkippedFiles skipped;
    if (deck.data.grow) {
      files = corpus_epoch_of(deck.corpus);
      const std::int64_t added = find_epoch(files, order.all_sources(), skipped);
      order.files = files.files;
      growth = fmt::format("; epoch {}: {} files, {} of them new", files.epoch, files.files.size(), added);
    }
    found = prepare_in_cache(order);
    if (deck.data.grow) found.skipped = skipped;
    return std::filesystem::absolute(found.folder).lexically_normal().string();
  });
  const std::string corpus =
      deck.data.grow ? distributed::from_first_rank(given.comm, [&] { return text_of(files); }) : "";
  const PreparedTokens prepared = read_tokens_of_rank_0(folder, given);
  const Epoch epoch = epoch_of(deck, prepared);
  DataSet data;
  data.corpus = corpus;
  data.tokens = folder;
  data.tokenizer = io::make_tokenizer(prepared.tokenizer_file);
  data.vocab = prepared.vocab;
  data.train_shards = shards_of(prepared.train, prepared.vocab, epoch.order);
  data.validation_shards = shards_of(prepared.val, prepared.vocab);
  require_documents(data.tokenizer.get(), deck);
  const Token document_start = data.tokenizer->end_of_text();
  data.train = samples_of(given, data.train_shards, document_start);
  if (data.train == nullptr) {
    throw Error(Failure::deck,
                fmt::format("{} holds {} training tokens: nothing to predict", key_of_data(deck), epoch.tokens));
  }
  data.validation = samples_of(given, data.validation_shards, document_start);
  const bool knows_bytes = prepared.chat_template.empty();  // of conversations, not the bytes of the answers alone
  if (knows_bytes) {
    data.train_bytes_per_token = bytes_per_token(epoch.bytes, epoch.tokens);
    data.validation_bytes_per_token = bytes_per_token(prepared.val.bytes, prepared.val.tokens);
  }
  data.sources = sources_of(given, prepared, data);
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
  data.description += epoch.text + growth;
  for (const auto& note : notes_on(order, found)) data.description += "; " + note;
  return data;
}

}  // namespace kozero::data
