// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include <kozero/io/bpe_training.hpp>
#include <kozero/io/merge_learner.hpp>

namespace kozero::io {

namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;
constexpr std::int64_t kSampleBytes = std::int64_t{64} << 20;
constexpr std::size_t kMaxPieces = std::size_t{1} << 20;
constexpr std::size_t kMaxPieceBytes = 64;  // longer ones (rows of a table, base64) teach no words

/// Drops the rarest pieces until half the room is free.
void prune(PieceCounts& counts) {
  for (std::int64_t rarest = 1; counts.size() > kMaxPieces / 2; rarest *= 2) {
    std::erase_if(counts, [&](const auto& entry) { return entry.second <= rarest; });
  }
}

PieceCounts count_pieces(const std::vector<TextFile>& corpus) {
  const SplitPattern pattern(kGpt2Split);
  const std::int64_t every = std::max<std::int64_t>(1, (total_bytes(corpus) + kSampleBytes - 1) / kSampleBytes);
  std::unordered_map<std::string, std::int64_t> tally;
  PieceCounts counts;
  const auto drain = [&] {
    for (const auto& [piece, count] : tally) counts[piece] += count;
    tally.clear();
    if (counts.size() > kMaxPieces) prune(counts);
  };
  TextReader reader(corpus, kBlockBytes);
  std::int64_t number = 0;
  for (TextBlock block; reader.next(block); ++number) {
    if (number % every != 0) continue;
    PieceSplitter splitter(pattern, block.text);
    for (std::string_view piece; splitter.next(piece);) {
      if (piece.size() > 1 && piece.size() <= kMaxPieceBytes) ++tally[std::string(piece)];
    }
    if (tally.size() > kMaxPieces) drain();
  }
  drain();
  return counts;
}

}  // namespace

BpeTokenizer train_bpe(const std::vector<TextFile>& corpus, int vocab) {
  return BpeTokenizer(learn_merges(count_pieces(corpus), vocab - 257));
}

}  // namespace kozero::io
