// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch_loader.hpp: random access to samples, and loading samples into a batch on the device.
//   sample s of T tokens:  inputs x_0 ... x_{T-1}, targets x_1 ... x_T     (T+1 tokens are read)
// A source may change targets, so that some do not count. A loader that masks documents also lists those of a batch.
// The loader owns the device buffers of one micro-step, and pinned host buffers of all micro-steps whose copies to a
// GPU may be under way, so that a load does not wait.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <kozero/core/batch.hpp>
#include <kozero/core/ledger.hpp>

namespace kozero::data {

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
  /// Changes the T targets of a sample, given as tokens 1 ... T of its window. Default: all of them count.
  virtual void change_targets(std::int64_t /*index*/, std::span<Token> /*targets*/) const {}
  /// How many targets of a sample change_targets() makes kIgnoredTarget.
  [[nodiscard]] virtual std::int64_t ignored_targets(std::int64_t /*index*/) const { return 0; }
  /// The token with which each document begins, or -1 if there is none.
  [[nodiscard]] virtual Token document_start() const { return -1; }
  /// Appends to `begins` the positions, increasing and from 1 on, at which documents begin in the sample of these
  /// inputs. Default: at each input that is document_start().
  virtual void find_documents(std::int64_t index, std::span<const Token> inputs,
                              std::vector<std::int32_t>& begins) const;
};

/// A sample in an epoch; together they name the sample's random streams.
struct SampleName {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;
};

class BatchLoader {
 public:
  /// Takes buffers for `micro_batch` sequences of `seq` tokens, and with `masks_documents` for their documents. The
  /// caller must fence the device at least once in `unfenced` loads.
  BatchLoader(std::int64_t micro_batch, std::int64_t seq, MemoryLedger& ledger, int unfenced = 1,
              bool masks_documents = false);

  /// The most sequences of a batch.
  [[nodiscard]] std::int64_t micro_batch() const { return static_cast<std::int64_t>(sample_ids_.extent(0)); }
  /// The named samples as a device batch, valid until the next load.
  Batch load(const SampleSource& source, const std::vector<SampleName>& names);
  /// The source's tail as a batch of one short sequence, valid until the next load.
  Batch load_tail(const SampleSource& source);

 private:
  template <class T>
  using Pinned = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace>;

  Batch load(const SampleSource& source, const std::vector<SampleName>& names, std::int64_t seq);
  /// The documents whose first positions are in begins_ (row T + position), copied to the device.
  Documents copy_documents(std::int64_t num_tokens, std::int64_t seq);

  std::int64_t seq_;
  bool masks_documents_;
  Vector<Token> tokens_;              // inputs, then targets: (2, micro_batch, T)
  Vector<std::uint64_t> sample_ids_;  // (micro_batch)
  Vector<DocumentSpan> spans_;        // (micro_batch T) at most; none unless documents are masked
  Vector<std::int32_t> positions_;    // the same
  std::size_t turns_;                 // host buffers; 1 on a host build, where copies are synchronous
  std::size_t turn_ = 0;
  Pinned<Token> host_tokens_;       // (turns, tokens)
  Pinned<std::uint64_t> host_ids_;  // (turns, sample ids)
  Pinned<DocumentSpan> host_spans_;
  Pinned<std::int32_t> host_positions_;
  std::vector<Token> window_;         // (T + 1)
  std::vector<std::int32_t> begins_;  // of a batch's documents: row T + position
};

}  // namespace kozero::data
