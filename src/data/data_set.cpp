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
#include "io/run/run_folder.hpp"
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

/// Refuses data.mask_documents where no token begins a document.
void require_documents(const DataSet& data, const io::Deck& deck) {
  if (!deck.data.mask_documents) return;
  if (data.tokenizer == nullptr) {
    io::refuse_value(deck, "data.mask_documents",
                     fmt::format("{} does not say which token begins a document; give its tokenizer as data.tokenizer",
                                 key_of_data(deck)));
  }
  if (data.tokenizer->end_of_text() >= 0) return;
  io::refuse_value(deck, "data.mask_documents",
                   fmt::format("data.tokenizer = \"{}\" has no end-of-text token, with which documents begin; accepted "
                               "is false, or a tokenizer that has one",
                               deck.data.tokenizer));
}

/// Refuses conversations, as long as training would learn their questions too.
void refuse_conversations(const DataSet& data, const io::Deck& deck) {
  if (data.train_shards == nullptr) return;
  for (const auto& shard : data.train_shards->shards()) {
    if (!recorded_answers(shard)) continue;
    throw Error(Failure::deck,
                fmt::format("{}: {} has conversations; `kozero prepare` makes and shows their tokens, but "
                            "training on answers alone is not there yet",
                            key_of_data(deck), shard.path()));
  }
}

}  // namespace

const char* key_of_data(const io::Deck& deck) { return source_of(deck).key; }

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
    require_documents(data, deck);
    refuse_conversations(data, deck);
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
