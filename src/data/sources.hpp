// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sources.hpp: the kinds of data that a deck can train on. Each opens its data, and tells its vocabulary without
// reading them. A new source is a file in this folder, two declarations here and a row of kSources in data_set.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <kozero/data/data_set.hpp>

namespace kozero::data {

/// What a source needs to open its data: the deck, the tokens T of a sequence, and the ranks.
struct OpenOrder {
  const io::Deck& deck;
  std::int64_t seq;
  distributed::Communicator& comm;
};

// Each opens on every rank; all ranks call it. Throws Error(deck | input | write), not yet seen by all ranks.
DataSet open_linear(const OpenOrder& order);
DataSet open_synthetic(const OpenOrder& order);
DataSet open_tokens(const OpenOrder& order);
DataSet open_text(const OpenOrder& order);

// Each is the vocabulary's size if model.vocab is not given. Throws Error(deck) if no key tells it.
std::int64_t vocab_of_synthetic(const io::Deck& deck);
std::int64_t vocab_of_tokens(const io::Deck& deck);
std::int64_t vocab_of_text(const io::Deck& deck);

/// The vocabulary of model.preset; 256 for a preset that does not define one.
std::int64_t vocab_of_preset(const io::Deck& deck);

/// Samples [first, first + count) of the windows of a token sequence: sample s has tokens [s T, s T + T].
/// `document_start`: SampleSource's.
std::unique_ptr<SampleSource> token_samples(std::shared_ptr<const TokenShards> shards, std::int64_t seq,
                                            std::int64_t first, std::int64_t count, Token document_start);

/// Samples of documents packed by best fit (packed_samples.cpp). `documents`: the first tokens of those that are
/// packed, increasing; the last document ends before token `end`. `document_start`: also the target of a document's
/// last token.
std::unique_ptr<SampleSource> packed_samples(std::shared_ptr<const TokenShards> shards, std::int64_t seq,
                                             std::span<const std::int64_t> documents, std::int64_t end,
                                             Token document_start);

/// Whether the deck wants documents packed, rather than windows of all tokens one behind the other.
bool packs_documents(const io::Deck& deck);

/// Refuses a key that is about documents if the tokenizer, or null, has no token that begins one.
void require_documents(const io::Tokenizer* tokenizer, const io::Deck& deck);

/// The key that gives the deck's data: "data.text".
const char* key_of_data(const io::Deck& deck);

/// How many whole windows a token sequence has.
std::int64_t windows_of(const TokenShards& shards, std::int64_t seq);

}  // namespace kozero::data
