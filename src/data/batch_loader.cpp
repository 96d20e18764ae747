// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch_loader.cpp: reads samples into pinned buffers and copies them to the device.
#include <algorithm>

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

}  // namespace

BatchLoader::BatchLoader(std::int64_t micro_batch, std::int64_t seq, MemoryLedger& ledger, int unfenced)
    : seq_(seq),
      tokens_(ledger.take<Token>(Memory::workspace, "batch tokens", 2 * micro_batch * seq)),
      sample_ids_(ledger.take<std::uint64_t>(Memory::workspace, "batch sample ids", micro_batch)),
      turns_(kHostIsDevice ? 1 : static_cast<std::size_t>(unfenced)) {
  const auto turns = static_cast<std::int64_t>(turns_);
  const auto host_bytes = (turns * 2 * micro_batch * seq + seq + 1) * static_cast<std::int64_t>(sizeof(Token)) +
                          turns * micro_batch * static_cast<std::int64_t>(sizeof(std::uint64_t));
  ledger.book(Memory::staging, "batch on the host", host_bytes);
  if (ledger.plans_only()) return;
  host_tokens_ = Pinned<Token>("kozero::data::tokens", turns_, tokens_.extent(0));
  host_ids_ = Pinned<std::uint64_t>("kozero::data::sample_ids", turns_, sample_ids_.extent(0));
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
  Token* const host_tokens = &host_tokens_(turn_, 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const SampleName& name = names[static_cast<std::size_t>(row)];
    source.read(name.sample, window);
    std::copy(window.begin(), window.end() - 1, host_tokens + row * seq);
    std::copy(window.begin() + 1, window.end(), host_tokens + count + row * seq);
    host_ids_(turn_, static_cast<std::size_t>(row)) =
        static_cast<std::uint64_t>(name.epoch) << 40U | static_cast<std::uint64_t>(name.sample);
  }
  const auto tokens = slice(tokens_, 0, 2 * count);
  const auto ids = slice(sample_ids_, 0, rows);
  copy_from_pinned(tokens, host_tokens);
  copy_from_pinned(ids, &host_ids_(turn_, 0));
  const Vector<const Token> all(tokens);
  return Batch{as_matrix(slice(all, 0, count), rows, seq), as_matrix(slice(all, count, count), rows, seq), ids};
}

}  // namespace kozero::data
