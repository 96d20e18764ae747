// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch_loader.cpp: reads samples into pinned buffers, finds their documents, and copies all to the device.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/data/batch_loader.hpp>

namespace kozero::data {
namespace {

/// Puts the copy on the compute stream, since earlier kernels may still read the destination.
template <class T>
void copy_from_pinned(const Vector<T>& to, const T* from) {
  Kokkos::deep_copy(Device(), to, Vector<const T, Kokkos::SharedHostPinnedSpace>(from, to.extent(0)));
}

/// Fills the tokens' positions and the list of documents of (rows, seq) tokens, the longest first. `begins`: row seq +
/// position of each document's first token, increasing.
void list_documents(DocumentSpan* spans, std::int32_t* positions, const std::vector<std::int32_t>& begins,
                    std::int64_t num_tokens, std::int64_t seq) {
  const std::int64_t count = std::ssize(begins);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = begins[static_cast<std::size_t>(i)];
    const std::int64_t end = i + 1 < count ? begins[static_cast<std::size_t>(i + 1)] : num_tokens;
    spans[i] = {static_cast<std::int32_t>(first / seq), static_cast<std::int32_t>(first % seq),
                static_cast<std::int32_t>(end - first), 0};
    std::iota(positions + first, positions + end, 0);
  }
  std::sort(spans, spans + count, [](const DocumentSpan& a, const DocumentSpan& b) {
    return std::tuple(-a.count, a.sequence, a.first) < std::tuple(-b.count, b.sequence, b.first);
  });
  for (std::int64_t i = 1; i < count; ++i) spans[i].before = spans[i - 1].before + spans[i - 1].count;
}

}  // namespace

void SampleSource::find_documents(std::int64_t /*index*/, std::span<const Token> inputs,
                                  std::vector<std::int32_t>& begins) const {
  const Token start = document_start();
  require(start >= 0, "documents are masked, but the source has no token that begins one");
  for (std::size_t t = 1; t < inputs.size(); ++t) {
    if (inputs[t] == start) begins.push_back(static_cast<std::int32_t>(t));
  }
}

BatchLoader::BatchLoader(std::int64_t micro_batch, std::int64_t seq, MemoryLedger& ledger, int unfenced,
                         bool masks_documents)
    : seq_(seq),
      masks_documents_(masks_documents),
      tokens_(ledger.take<Token>(Memory::workspace, "batch tokens", 2 * micro_batch * seq)),
      sample_ids_(ledger.take<std::uint64_t>(Memory::workspace, "batch sample ids", micro_batch)),
      spans_(ledger.take<DocumentSpan>(Memory::workspace, "batch documents", masks_documents ? micro_batch * seq : 0)),
      positions_(
          ledger.take<std::int32_t>(Memory::workspace, "batch positions", masks_documents ? micro_batch * seq : 0)),
      turns_(kHostIsDevice ? 1 : static_cast<std::size_t>(unfenced)) {
  const auto turns = static_cast<std::int64_t>(turns_);
  constexpr std::int64_t kBytesOfDocuments = sizeof(DocumentSpan) + sizeof(std::int32_t);  // per token
  const auto host_bytes = (turns * 2 * micro_batch * seq + seq + 1) * static_cast<std::int64_t>(sizeof(Token)) +
                          turns * micro_batch * static_cast<std::int64_t>(sizeof(std::uint64_t)) +
                          (masks_documents ? turns * micro_batch * seq * kBytesOfDocuments : 0);
  ledger.book(Memory::staging, "batch on the host", host_bytes);
  if (ledger.plans_only()) return;
  host_tokens_ = Pinned<Token>("kozero::data::tokens", turns_, tokens_.extent(0));
  host_ids_ = Pinned<std::uint64_t>("kozero::data::sample_ids", turns_, sample_ids_.extent(0));
  if (masks_documents) {
    host_spans_ = Pinned<DocumentSpan>("kozero::data::documents", turns_, spans_.extent(0));
    host_positions_ = Pinned<std::int32_t>("kozero::data::positions", turns_, positions_.extent(0));
  }
  window_.resize(static_cast<std::size_t>(seq + 1));
}

Batch BatchLoader::load(const SampleSource& source, const std::vector<SampleName>& names) {
  return load(source, names, seq_);
}

Batch BatchLoader::load_tail(const SampleSource& source) {
  require(source.tail() > 0 && source.tail() < seq_, "a tail has more than no and fewer than model.seq targets");
  return load(source, {SampleName{0, source.num_samples()}}, source.tail());
}

Batch BatchLoader::load(const SampleSource& source, const std::vector<SampleName>& names, std::int64_t seq) {
  const auto rows = static_cast<std::int64_t>(names.size());
  const std::int64_t count = rows * seq;
  const std::span<Token> window(window_.data(), static_cast<std::size_t>(seq + 1));
  require(2 * count <= static_cast<std::int64_t>(tokens_.extent(0)), "a batch is larger than micro_batch");
  turn_ = (turn_ + 1) % turns_;
  begins_.clear();
  Token* const host_tokens = &host_tokens_(turn_, 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const SampleName& name = names[static_cast<std::size_t>(row)];
    source.read(name.sample, window);
    const std::span inputs(host_tokens + row * seq, static_cast<std::size_t>(seq));
    const std::span targets(host_tokens + count + row * seq, inputs.size());
    std::copy(window.begin(), window.end() - 1, inputs.begin());
    std::copy(window.begin() + 1, window.end(), targets.begin());
    source.change_targets(name.sample, targets);
    if (masks_documents_) {
      const auto row_begins = std::ssize(begins_);
      begins_.push_back(0);
      source.find_documents(name.sample, inputs, begins_);
      std::for_each(begins_.begin() + row_begins, begins_.end(),
                    [&](std::int32_t& begin) { begin += static_cast<std::int32_t>(row * seq); });
    }
    host_ids_(turn_, static_cast<std::size_t>(row)) =
        static_cast<std::uint64_t>(name.epoch) << 40U | static_cast<std::uint64_t>(name.sample);
  }
  const auto tokens = slice(tokens_, 0, 2 * count);
  const auto ids = slice(sample_ids_, 0, rows);
  copy_from_pinned(tokens, host_tokens);
  copy_from_pinned(ids, &host_ids_(turn_, 0));
  const Vector<const Token> all(tokens);
  Batch batch{as_matrix(slice(all, 0, count), rows, seq), as_matrix(slice(all, count, count), rows, seq), ids};
  if (masks_documents_ && rows > 0) batch.documents = copy_documents(count, seq);
  return batch;
}

Documents BatchLoader::copy_documents(std::int64_t num_tokens, std::int64_t seq) {
  DocumentSpan* const host_spans = &host_spans_(turn_, 0);
  std::int32_t* const host_positions = &host_positions_(turn_, 0);
  list_documents(host_spans, host_positions, begins_, num_tokens, seq);
  const auto spans = slice(spans_, 0, std::ssize(begins_));
  const auto positions = slice(positions_, 0, num_tokens);
  copy_from_pinned(spans, static_cast<const DocumentSpan*>(host_spans));
  copy_from_pinned(positions, static_cast<const std::int32_t*>(host_positions));
  return {spans, positions, host_spans[0].count};
}

}  // namespace kozero::data
