// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch_loader.hpp: reads sequences into the model's batch.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T     (T+1 tokens are read)
// A SampleSource is a random-access set of samples, with a last one that may be shorter; the loader owns the device
// buffers of one micro-step, and pinned host buffers of those whose copies to a GPU may be under way:
// a load waits for nothing.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/model/model.hpp>

namespace kozero::train {

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

}  // namespace kozero::train
