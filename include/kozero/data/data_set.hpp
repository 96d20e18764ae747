// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.hpp: the data of a deck's `data` keys, opened for random access on every rank.
//   text:      rank 0 makes token shards in a cache folder (or finds them there), then every rank opens them
//   source:    text of several sources; the training shards of each occur `repeat` times in the sequence of tokens, or,
//              with weights, each source has samples of its own, which the sampler mixes
//   tokens:    token shards as they are; a tail of val_fraction of the samples is kept for validation
//   synthetic: a Markov source whose entropy bounds the loss; for the linear demo, numbered samples without tokens
// Sample s of T+1 tokens starts at token s*T, so that every token is predicted once per pass. The tokens behind the
// last whole sample are the source's tail. The table of sources is in src/data/data_set.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/data/batch_loader.hpp>
#include <kozero/data/data_check.hpp>
#include <kozero/data/sampler.hpp>
#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/deck/deck.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::data {

/// One of several sources of text.
struct SourceData {
  std::string name;
  double weight = 0.0;                        ///< 0: the sources are not mixed
  std::int64_t epochs = 0;                    ///< the most passes over it; 0: no limit
  std::int64_t tokens = 0;                    ///< of training
  std::shared_ptr<const SampleSource> train;  ///< null if it has less than two tokens, or a source is repeated
  std::shared_ptr<const SampleSource> validation;
  std::optional<double> train_bytes_per_token;
  std::optional<double> validation_bytes_per_token;
};

struct DataSet {
  std::shared_ptr<const TokenShards> train_shards;       ///< null for data without files
  std::shared_ptr<const TokenShards> validation_shards;  ///< null if there are none; may be train_shards
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;     ///< null if the deck keeps no validation data
  std::optional<double> train_bytes_per_token;  ///< bytes of text per token, if known
  std::optional<double> validation_bytes_per_token;
  std::vector<SourceData> sources;           ///< of data.source
  std::unique_ptr<io::Tokenizer> tokenizer;  ///< null for synthetic data
  std::int64_t vocab = 0;                    ///< tokens the data can hold; 0 for the linear demo
  std::string answers;                       ///< of conversations: "2400 tokens, HASH", those that are trained
  std::string tokens;                        ///< the folder of prepared tokens of text; "" for other data
  std::string corpus;                        ///< with data.grow: the files, as Deck::corpus has them
  std::optional<double> loss_floor;          ///< smallest possible loss in nats per token, if known
  std::string description;                   ///< one line for the banner; on rank 0 with the skipped inputs

  /// Whether the training samples are a weighted mixture of the sources'.
  [[nodiscard]] bool is_mixture() const { return !sources.empty() && sources.front().weight > 0.0; }
  /// The slots of each source of a mixture (mixture.hpp); empty if the data are none.
  [[nodiscard]] std::vector<std::int64_t> slots() const;
};

/// The vocabulary size of a deck, found without reading its text: model.vocab, else the tokenizer's or the preset's
/// size. Throws Error(deck) if none of them is given.
std::int64_t vocab_of(const io::Deck& deck);

/// The folder of tokens that runs share (token_cache.hpp): data.cache, or .tokens beside run.dir.
std::string token_cache_of(const io::Deck& deck);

/// Opens the deck's data for sequences of `seq` tokens. Collective. Throws Error(deck | input | write), seen by all
/// ranks.
DataSet open_data(const io::Deck& deck, std::int64_t seq, distributed::Communicator& comm);

/// Throws Error(deck) naming the key and its tokens if the training data hold less than one whole sample.
void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq);

/// The sampler of the training data.
Sampler sampler_of(const DataSet& data, std::uint64_t seed, std::int64_t global_batch, const SamplingBegin& begin = {});

/// Throws Error(deck) naming the source and the last possible step if a run of `steps` steps makes more passes over a
/// source of a mixture than its limit allows.
void require_passes(const DataSet& data, const io::Deck& deck, const Sampler& sampler, std::int64_t steps);

/// "; of each 1000 samples 700 are of web (24520 tokens, 2.31 passes), 300 of code (8011 tokens, 0.40 passes)", in
/// steps steps_before + 1 to `steps`; "" if the data are no mixture.
std::string mixture_text(const DataSet& data, const Sampler& sampler, std::int64_t steps_before, std::int64_t steps);

/// check.identity() with the mixture and the answers. Collective.
io::DataIdentity identity_of(const DataSet& data, DataCheck& check, distributed::Communicator& comm);

}  // namespace kozero::data
