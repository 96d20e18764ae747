// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.hpp: the data that a deck names, the samples of each step and rank, and loading samples into a batch.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T
//   epoch e visits sample permuted(key(seed, e), p) at position p: each sample once
// The samples of a step depend on (seed, step) alone, so the data's state is one integer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/model.hpp>
#include "io/deck/deck.hpp"
#include "io/text/token_shard.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::train {

// The samples of a step, and this rank's samples in each micro-step.
//   epoch e visits sample permuted(key(seed, e), p) at position p = 0 ... num_samples-1: a bijection, so each once
//   step k of an epoch takes positions [k*G, min((k+1)*G, num_samples)): the epoch's last step may be incomplete
//   granule g of a step: micro_batch consecutive positions, the last granule maybe fewer; in micro-step m rank r of n
//   has granule m n + r, or none behind the last
// All of this is a function of (seed, step), so the data's state is one integer and survives a change of rank count.

/// Positions [first, first + count) of an epoch.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A share divided into granules. A granule is the sequences of one micro-step on one rank; sums over sequences are
/// folded over granules, in order. The division does not depend on the number of ranks.
class Granules {
 public:
  Granules(const Share& all, std::int64_t micro_batch) : all_(all), micro_batch_(micro_batch) {}

  [[nodiscard]] std::int64_t count() const { return (all_.count + micro_batch_ - 1) / micro_batch_; }
  /// Micro-steps that `ranks` ranks need for all granules.
  [[nodiscard]] int micro_steps(int ranks) const { return static_cast<int>((count() + ranks - 1) / ranks); }
  /// How many ranks, counted from rank 0, have a granule in a micro-step.
  [[nodiscard]] int busy_ranks(int micro_step, int ranks) const {
    return static_cast<int>(std::min<std::int64_t>(ranks, count() - std::int64_t{micro_step} * ranks));
  }
  /// Granule `index`; empty behind the last granule.
  [[nodiscard]] Share granule(std::int64_t index) const {
    const std::int64_t first = std::min(index * micro_batch_, all_.count);
    return {all_.first + first, std::min(micro_batch_, all_.count - first)};
  }

 private:
  Share all_;
  std::int64_t micro_batch_;
};

/// The sum of one number per granule, in the order of granules. `values` are the numbers of all ranks, in rank order,
/// and of each rank by micro-step.
double sum_over_granules(const std::vector<double>& values, int ranks, std::int64_t granules);

class Sampler {
 public:
  /// `global_batch`: G, sequences per step over all ranks. Throws Error(deck) if there are no samples.
  Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (num_samples_ + global_batch_ - 1) / global_batch_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The epoch (from 0) of a step (from 1).
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const { return (step - 1) / steps_per_epoch(); }
  /// Passes over the samples after a step: complete epochs, and the completed fraction of the current epoch.
  [[nodiscard]] double epochs_after(std::int64_t step) const;
  /// The step's positions in its epoch.
  [[nodiscard]] Share positions(std::int64_t step) const;
  /// The sample at a position of an epoch.
  [[nodiscard]] std::int64_t sample(std::int64_t epoch, std::int64_t position) const;

 private:
  std::uint64_t seed_;
  std::int64_t num_samples_;
  std::int64_t global_batch_;
};

// Loading sequences into the model's batch.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T     (T+1 tokens are read)
// A SampleSource is a random-access set of samples, whose tail is a shorter sample. The loader owns the device buffers
// of one micro-step, and pinned host buffers of all micro-steps whose copies to a GPU may be under way, so that a load
// does not wait.

/// A set of samples, each a window of T+1 tokens, read in any order.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;
  /// The number of targets behind the last whole sample, less than T. Training skips these targets; evaluation uses
  /// them.
  [[nodiscard]] virtual std::int64_t tail() const { return 0; }
  /// Fills `window` (T+1 tokens) with sample `index`, or for index num_samples() with the tail (tail()+1 tokens).
  /// Throws Error(input) if the data are damaged.
  virtual void read(std::int64_t index, std::span<Token> window) const = 0;
};

/// A sample in an epoch; together they name the sample's random streams.
struct SampleName {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;
};

class BatchLoader {
 public:
  /// Takes buffers for `micro_batch` sequences of `seq` tokens. The caller must fence the device at least once in
  /// `unfenced` loads.
  BatchLoader(std::int64_t micro_batch, std::int64_t seq, MemoryLedger& ledger, int unfenced = 1);

  /// The most sequences of a batch.
  [[nodiscard]] std::int64_t micro_batch() const { return static_cast<std::int64_t>(sample_ids_.extent(0)); }
  /// The named samples as a device batch, valid until the next load.
  model::Batch load(const SampleSource& source, const std::vector<SampleName>& names);
  /// The source's tail as a batch of one short sequence, valid until the next load.
  model::Batch load_tail(const SampleSource& source);

 private:
  template <class T>
  using Pinned = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace>;

  model::Batch load(const SampleSource& source, const std::vector<SampleName>& names, std::int64_t seq);

  std::int64_t seq_;
  Vector<Token> tokens_;              // inputs, then targets: (2, micro_batch, T)
  Vector<std::uint64_t> sample_ids_;  // (micro_batch)
  std::size_t turns_;                 // host buffers; 1 on a host build, where copies are synchronous
  std::size_t turn_ = 0;
  Pinned<Token> host_tokens_;       // (turns, tokens)
  Pinned<std::uint64_t> host_ids_;  // (turns, sample ids)
  std::vector<Token> window_;       // (T + 1)
};

// The data named by a deck's `data` keys, opened for random access on every rank.
//   text:      rank 0 makes token shards in a cache folder (or finds them there), then every rank opens them
//   tokens:    token shards as they are; a tail of val_fraction of the samples is kept for validation
//   synthetic: a Markov source whose entropy bounds the loss; for the linear demo, numbered samples without tokens
// Sample s of T+1 tokens starts at token s*T, so that every token is predicted once per pass. The tokens behind the
// last whole sample are the source's tail.

struct DataSet {
  std::shared_ptr<const io::TokenShards> train_shards;       ///< null for data without files
  std::shared_ptr<const io::TokenShards> validation_shards;  ///< null if there are none; may be train_shards
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;     ///< null if the deck keeps no validation data
  std::optional<double> train_bytes_per_token;  ///< bytes of text per token, if known
  std::optional<double> validation_bytes_per_token;
  std::unique_ptr<io::Tokenizer> tokenizer;  ///< null for synthetic data
  std::int64_t vocab = 0;                    ///< tokens the data can hold; 0 for the linear demo
  std::optional<double> loss_floor;          ///< smallest possible loss in nats per token, if known
  std::string description;                   ///< one line for the banner; on rank 0 with the skipped inputs
};

/// The vocabulary size of a deck, found without reading its text: model.vocab, else the tokenizer's or the preset's
/// size. Throws Error(deck) if none of them is given.
std::int64_t vocab_of(const io::Deck& deck);

/// The folder of tokens that runs share (io/text/token_cache.hpp): data.cache, or .tokens beside run.dir.
std::string token_cache_of(const io::Deck& deck);

/// Opens the deck's data for sequences of `seq` tokens. Collective. Throws Error(deck | input | write), seen by all
/// ranks.
DataSet open_data(const io::Deck& deck, std::int64_t seq, distributed::Communicator& comm);

/// Throws Error(deck) naming the key and its tokens if the training data hold less than one whole sample.
void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq);

}  // namespace kozero::train
