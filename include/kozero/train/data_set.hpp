// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.hpp: the data that a deck names, which samples each step and rank takes, and their loading into a batch.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T
//   epoch e visits sample permuted(key(seed, e), p) at position p: each sample once
// The samples of a step depend on (seed, step) alone, so the data state is one integer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/model/model.hpp>
#include "io/deck/deck.hpp"
#include "io/text/token_shard.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::train {

// Which samples a step takes, and which of them this rank takes in each micro-step.
//   epoch e visits sample permuted(key(seed, e), p) at position p = 0 ... num_samples-1: a bijection, so each once
//   step k of an epoch takes positions [k*G, min((k+1)*G, num_samples)): the epoch's last step may be incomplete
//   granule g of a step: micro_batch positions in a row, the last one maybe fewer; in micro-step m rank r of n has
//   granule m n + r, or none behind the last
// Everything is a function of (seed, step), so the data state is one integer and survives a change of rank count.

/// Positions [first, first + count) of an epoch.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A share cut into granules: what a rank computes at once, and what sums over sequences are folded over, in order.
/// They depend on no number of ranks.
class Granules {
 public:
  Granules(const Share& all, std::int64_t micro_batch) : all_(all), micro_batch_(micro_batch) {}

  [[nodiscard]] std::int64_t count() const { return (all_.count + micro_batch_ - 1) / micro_batch_; }
  /// Micro-steps that `ranks` ranks take for them.
  [[nodiscard]] int micro_steps(int ranks) const { return static_cast<int>((count() + ranks - 1) / ranks); }
  /// How many of the ranks have a granule in a micro-step: the first ones.
  [[nodiscard]] int busy_ranks(int micro_step, int ranks) const {
    return static_cast<int>(std::min<std::int64_t>(ranks, count() - std::int64_t{micro_step} * ranks));
  }
  /// Granule `index`, empty behind the last.
  [[nodiscard]] Share granule(std::int64_t index) const {
    const std::int64_t first = std::min(index * micro_batch_, all_.count);
    return {all_.first + first, std::min(micro_batch_, all_.count - first)};
  }

 private:
  Share all_;
  std::int64_t micro_batch_;
};

/// The sum of one number a granule, in the order of granules; `values` are all ranks', in rank order, each by
/// micro-step.
double sum_over_granules(const std::vector<double>& values, int ranks, std::int64_t granules);

class Sampler {
 public:
  /// `global_batch` G sequences a step over all ranks. Throws Error(deck) where there is no sample.
  Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (num_samples_ + global_batch_ - 1) / global_batch_; }
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The epoch (from 0) of a step (from 1).
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const { return (step - 1) / steps_per_epoch(); }
  /// Passes over the samples after a step: epochs that are complete, and the part of the one under way.
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

// Reads sequences into the model's batch.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T     (T+1 tokens are read)
// A SampleSource is a random-access set of samples, with a last one that may be shorter; the loader owns the device
// buffers of one micro-step, and pinned host buffers of those whose copies to a GPU may be under way:
// a load waits for nothing.

/// A set of samples, each a window of T+1 tokens, reachable in any order.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;
  /// Targets behind the last whole sample, fewer than T: training leaves them out, evaluation does not.
  [[nodiscard]] virtual std::int64_t tail() const { return 0; }
  /// Fills `window` (T+1 tokens) with sample `index`; at index num_samples() the tail (tail()+1 tokens). Throws
  /// Error(input) where the data are damaged.
  virtual void read(std::int64_t index, std::span<Token> window) const = 0;
};

/// A sample and the number that names its random streams.
struct SampleName {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;
};

class BatchLoader {
 public:
  /// Takes buffers for `micro_batch` sequences of `seq` tokens. The caller fences the device at least once in
  /// `unfenced` loads, a step's or an evaluation's.
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
  std::size_t turns_;                 // host buffers; 1 on a host, where a copy is complete when it returns
  std::size_t turn_ = 0;
  Pinned<Token> host_tokens_;       // (turns, tokens)
  Pinned<std::uint64_t> host_ids_;  // (turns, sample ids)
  std::vector<Token> window_;       // (T + 1)
};

// What `data` in a deck names, opened for random access on every rank.
//   text:      rank 0 makes token shards in a cache folder (or finds them made), then every rank opens them
//   tokens:    token shards as they are; a tail of val_fraction of the samples is kept for validation
//   synthetic: a Markov source whose entropy is the loss's floor; for the linear demo, numbered samples without tokens
// Sample s of T+1 tokens starts at token s*T, so that every token is predicted once in a pass; what is left behind the
// last whole sample is the source's tail.

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
