// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.cpp: the table of sources, and the opening of a deck's data by it.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <filesystem>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/agreement.hpp>
#include "io/deck/check.hpp"
#include "io/posix/block_hashes.hpp"
#include "io/run/run_folder.hpp"
#include "src/data/chat_tokens.hpp"
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

constexpr std::int64_t kVocabOfAnyPreset = 256;  ///< of tiny, small, medium: that of the byte tokenizer

/// A kind of data, with the key that gives it. The first row that is_of accepts opens a deck's data.
struct Source {
  const char* key;
  bool (*is_of)(const io::Deck&);
  DataSet (*open)(const OpenOrder&);
  /// The vocabulary's size if model.vocab does not give it.
  std::int64_t (*vocab)(const io::Deck&);
};

constexpr std::array kSources = {
    Source{"data.synthetic", [](const io::Deck& deck) { return !architecture(deck.model.arch).decoder; }, open_linear,
           vocab_of_synthetic},
    Source{"data.synthetic", [](const io::Deck& deck) { return deck.data.synthetic; }, open_synthetic,
           vocab_of_synthetic},
    Source{"data.tokens", [](const io::Deck& deck) { return !deck.data.tokens.empty(); }, open_tokens, vocab_of_tokens},
    Source{"data.source", [](const io::Deck& deck) { return !deck.data.source.empty(); }, open_text, vocab_of_text},
    Source{"data.text", [](const io::Deck& /*deck*/) { return true; }, open_text, vocab_of_text},
};

const Source& source_of(const io::Deck& deck) {
  return *std::ranges::find_if(kSources, [&](const Source& row) { return row.is_of(deck); });
}

/// The share of a source's targets that count, in percent.
double counted_share(const SampleSource& source, std::int64_t seq) {
  std::int64_t ignored = 0;
  for (std::int64_t i = 0; i < source.num_samples(); ++i) ignored += source.ignored_targets(i);
  const auto all = static_cast<double>(std::max<std::int64_t>(1, source.num_samples() * seq));
  return 100.0 - 100.0 * static_cast<double>(ignored) / all;
}

/// "; packed by best fit into 120 sequences, 0.31 % of their places empty" and the like.
std::string text_of_targets(const DataSet& data, const io::Deck& deck, std::int64_t seq, bool is_chat) {
  std::string text;
  if (packs_documents(deck)) text += fmt::format("; packed by best fit into {} sequences", data.train->num_samples());
  if (!is_chat && !packs_documents(deck)) return text;
  const double share = counted_share(*data.train, seq);
  if (is_chat) return text + fmt::format("; {:.2f} % of the targets are answers, which alone count", share);
  return text + fmt::format(", {:.2f} % of their places empty", 100.0 - share);
}

/// "2400 tokens, HASH" of the trained tokens of shards of conversations; "" for other shards. Refuses those of which
/// nothing or everything would be learned.
std::string answers_in(const std::shared_ptr<const TokenShards>& shards, const io::Deck& deck) {
  const auto answers = shards == nullptr ? std::nullopt : shards->answers();
  if (!answers) return "";
  std::int64_t trained = 0;
  for (const auto& range : *answers) trained += range.end - range.first;
  require_answers(trained, shards->num_tokens(), key_of_data(deck));
  const std::string bytes(reinterpret_cast<const char*>(answers->data()), answers->size() * sizeof(TokenRange));
  return fmt::format("{} tokens, {}", trained, io::xxh3_128(bytes));
}

}  // namespace

const char* key_of_data(const io::Deck& deck) { return source_of(deck).key; }

bool packs_documents(const io::Deck& deck) { return deck.data.pack == "best_fit"; }

void require_documents(const io::Tokenizer* tokenizer, const io::Deck& deck) {
  if (!deck.data.mask_documents && !packs_documents(deck)) return;
  const std::string key = packs_documents(deck) ? "data.pack" : "data.mask_documents";
  if (tokenizer == nullptr) {
    io::refuse_value(deck, key,
                     fmt::format("{} does not say which token begins a document; give its tokenizer as data.tokenizer",
                                 key_of_data(deck)));
  }
  if (tokenizer->end_of_text() >= 0) return;
  io::refuse_value(deck, key,
                   fmt::format("data.tokenizer = \"{}\" has no end-of-text token, with which documents begin; accepted "
                               "is {}, or a tokenizer that has one",
                               deck.data.tokenizer, packs_documents(deck) ? "\"stream\"" : "false"));
}

std::int64_t vocab_of_preset(const io::Deck& deck) {
  const Preset* preset = find_preset(deck.model.preset);
  return preset == nullptr || preset->family.vocab == 0 ? kVocabOfAnyPreset : preset->family.vocab;
}

std::int64_t vocab_of(const io::Deck& deck) {
  return deck.model.vocab > 0 ? deck.model.vocab : source_of(deck).vocab(deck);
}

std::string token_cache_of(const io::Deck& deck) {
  if (!deck.data.cache.empty()) return deck.data.cache;
  return (std::filesystem::path(io::without_trailing_slash(deck.run.dir)).parent_path() / ".tokens").string();
}

DataSet open_data(const io::Deck& deck, std::int64_t seq, distributed::Communicator& comm) {
  return distributed::agreed(comm, [&] {
    DataSet data = source_of(deck).open({deck, seq, comm});
    require_documents(data.tokenizer.get(), deck);
    data.answers = answers_in(data.train_shards, deck);
    if (data.validation != nullptr) static_cast<void>(answers_in(data.validation_shards, deck));
    data.description += text_of_targets(data, deck, seq, !data.answers.empty());
    if (deck.data.mask_documents) data.description += "; attention and positions stay inside a document";
    return data;
  });
}

void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq) {
  if (data.train->num_samples() > 0) return;
  throw Error(Failure::deck, fmt::format("{} holds {} training tokens, not one sample of model.seq + 1 = {}",
                                         key_of_data(deck), data.train->tail() + 1, seq + 1));
}

}  // namespace kozero::data
