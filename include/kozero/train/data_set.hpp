// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.hpp: what `data` in a deck names, opened for random access on every rank.
//   text:      rank 0 makes token shards in a cache folder (or finds them made), then every rank opens them
//   tokens:    token shards as they are; a tail of val_fraction of the samples is kept for validation
//   synthetic: a Markov source whose entropy is the loss's floor; for the linear demo, numbered samples without tokens
// Sample s of T+1 tokens starts at token s*T, so that every token is predicted once in a pass; what is left behind the
// last whole sample is the source's tail.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/io/token_shards.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/train/batch_loader.hpp>

namespace kozero::train {

struct DataSet {
  std::shared_ptr<const io::TokenShards> train_shards;       ///< null where the source is no files
  std::shared_ptr<const io::TokenShards> validation_shards;  ///< null where there are none; may be train_shards
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;         ///< null where the deck keeps none
  std::optional<double> train_bytes_per_token;      ///< of the text, where known
  std::optional<double> validation_bytes_per_token;
  std::unique_ptr<io::Tokenizer> tokenizer;  ///< null for synthetic data
  std::int64_t vocab = 0;                    ///< tokens the data can hold; 0 for the linear demo
  std::optional<double> loss_floor;          ///< nats per token, where known
  std::string description;                   ///< one line for the banner; rank 0's says what was skipped
};

/// The vocabulary of a deck without reading its text: model.vocab, or the tokenizer's, or the preset's. Throws
/// Error(deck) where none of them says it.
std::int64_t vocab_of(const io::Deck& deck);

/// Opens the deck's data for sequences of `seq` tokens; every rank calls it. `cache` is the folder for token shards
/// made from text. Throws Error(deck | input | write), seen by all ranks.
DataSet open_data(const io::Deck& deck, std::int64_t seq, const std::string& cache, dist::Communicator& comm);

/// Training needs one whole sample. Throws Error(deck) naming the key and what it holds.
void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq);

}  // namespace kozero::train
