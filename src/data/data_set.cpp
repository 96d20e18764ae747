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

/// "; packed by best fit; 0.31 % of the targets in 120 sequences do not count"; "" if all count.
std::string text_of_targets(const SampleSource& samples, const io::Deck& deck, std::int64_t seq) {
  std::int64_t ignored = 0;
  for (std::int64_t i = 0; i < samples.num_samples(); ++i) ignored += samples.ignored_targets(i);
  const auto all = static_cast<double>(std::max<std::int64_t>(1, samples.num_samples() * seq));
  const std::string text = ignored == 0
                               ? ""
                               : fmt::format("; {:.2f} % of the targets in {} sequences do not count",
                                             100.0 * static_cast<double>(ignored) / all, samples.num_samples());
  return (packs_documents(deck) ? "; packed by best fit" : "") + text;
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
    data.description += text_of_targets(*data.train, deck, seq);
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
