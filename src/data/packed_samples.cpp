// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// packed_samples.cpp: documents in sequences of T tokens, so that few are cut (data.pack = "best_fit").
//   a document of n >= T tokens: floor(n / T) pieces of T tokens, each a sequence of its own, and the rest as a piece
//   pieces of fewer than T tokens, the longest first: into the sequence with the least room that has enough; else a new
//   one. Among sequences with equal room the one that got it last.
// The target of a document's last token is the end-of-text token. Places behind a sequence's last piece have the
// end-of-text token, and their targets are ignored. So every token of the corpus is a target once: those of a document
// behind its first, and the end-of-text token, which is the first, as the target of the last. Of conversations, targets
// that are not trained are ignored too (answers.hpp).
// Ding et al. 2024, "Fewer Truncations Improve Language Modeling", arXiv:2404.10830.
#include <algorithm>
#include <numeric>
#include <set>

#include <kozero/core/error.hpp>
#include "src/data/answers.hpp"
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

/// Tokens [first, first + count) of the corpus, of one document.
struct Piece {
  std::int64_t first = 0;
  std::int32_t count = 0;
  bool ends_document = false;
};

/// Pieces in rows of at most `seq` tokens each.
class Rows {
 public:
  explicit Rows(std::int64_t seq) : seq_(seq), with_room_(static_cast<std::size_t>(seq)) {}

  /// Adds a piece to the row that fits best.
  void add(const Piece& piece) {
    const auto room = rooms_.lower_bound(piece.count);
    std::int64_t row = num_rows_;
    std::int64_t left = seq_ - piece.count;
    if (room == rooms_.end()) {
      ++num_rows_;
    } else {
      auto& rows = with_room_[static_cast<std::size_t>(*room)];
      row = rows.back();
      left = *room - piece.count;
      rows.pop_back();
      if (rows.empty()) rooms_.erase(room);
    }
    pieces_.push_back(piece);
    row_of_.push_back(row);
    if (left == 0) return;
    rooms_.insert(left);
    with_room_[static_cast<std::size_t>(left)].push_back(row);
  }

  /// The pieces row by row, and for each row and behind the last one the number of the row's first piece.
  void take(std::vector<Piece>& pieces, std::vector<std::int64_t>& begins) const {
    begins.assign(static_cast<std::size_t>(num_rows_ + 1), 0);
    for (const auto row : row_of_) ++begins[static_cast<std::size_t>(row + 1)];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<std::int64_t> next = begins;
    pieces.resize(pieces_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      pieces[static_cast<std::size_t>(next[static_cast<std::size_t>(row_of_[i])]++)] = pieces_[i];
    }
  }

 private:
  std::int64_t seq_;
  std::int64_t num_rows_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> row_of_;                  // of each piece
  std::set<std::int64_t> rooms_;                      // of rows that are not full
  std::vector<std::vector<std::int64_t>> with_room_;  // rows by the room that they have
};

class PackedSamples final : public SampleSource {
 public:
  PackedSamples(std::shared_ptr<const TokenShards> shards, std::int64_t seq, std::span<const std::int64_t> begins,
                std::int64_t end, Token end_of_text)
      : shards_(std::move(shards)), answers_(Answers::of(*shards_)), seq_(seq), end_of_text_(end_of_text) {
    Rows rows(seq);
    std::vector<Piece> rests;
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::int64_t behind = i + 1 < begins.size() ? begins[i + 1] : end;
      std::int64_t first = begins[i];
      for (; behind - first >= seq; first += seq) {
        rows.add({first, static_cast<std::int32_t>(seq), behind - first == seq});
      }
      if (first < behind) rests.push_back({first, static_cast<std::int32_t>(behind - first), true});
    }
    std::ranges::stable_sort(rests, std::greater(), &Piece::count);
    for (const auto& piece : rests) rows.add(piece);
    rows.take(pieces_, begins_);
  }

  [[nodiscard]] std::int64_t num_samples() const override { return std::ssize(begins_) - 1; }
  void read(std::int64_t index, std::span<Token> window) const override {
    std::size_t at = 0;
    for (const Piece& piece : row(index)) {
      // Of a piece that fills the sequence and does not end its document, the next token is the last target.
      const std::size_t count = static_cast<std::size_t>(piece.count) + (piece.ends_document ? 0 : 1);
      shards_->read(piece.first, window.subspan(at, count));
      at += count;
    }
    std::fill(window.begin() + static_cast<std::ptrdiff_t>(at), window.end(), end_of_text_);
  }
  void change_targets(std::int64_t index, std::span<Token> targets) const override {
    std::size_t at = 0;
    for (const Piece& piece : row(index)) {
      const auto count = static_cast<std::size_t>(piece.count);
      if (piece.ends_document) targets[at + count - 1] = end_of_text_;
      if (answers_ != nullptr) answers_->keep_trained(piece.first + 1, targets.subspan(at, count));
      at += count;
    }
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(at), targets.end(), kIgnoredTarget);
  }
  [[nodiscard]] std::int64_t ignored_targets(std::int64_t index) const override {
    if (index == num_samples()) return 0;
    const auto pieces = row(index);
    return std::accumulate(pieces.begin(), pieces.end(), seq_, [this](std::int64_t ignored, const Piece& piece) {
      const std::int64_t first = piece.first + 1;
      return ignored - (answers_ == nullptr ? piece.count : answers_->count(first, first + piece.count));
    });
  }
  [[nodiscard]] Token document_start() const override { return end_of_text_; }
  void find_documents(std::int64_t index, std::span<const Token> /*inputs*/,
                      std::vector<std::int32_t>& begins) const override {
    std::int32_t at = 0;
    for (const Piece& piece : row(index)) {
      if ((at += piece.count) < seq_) begins.push_back(at);
    }
  }

 private:
  /// A row behind the last one, the tail, has none.
  [[nodiscard]] std::span<const Piece> row(std::int64_t index) const {
    if (index == num_samples()) return {};
    const auto first = begins_[static_cast<std::size_t>(index)];
    return std::span(pieces_).subspan(static_cast<std::size_t>(first),
                                      static_cast<std::size_t>(begins_[static_cast<std::size_t>(index + 1)] - first));
  }

  std::shared_ptr<const TokenShards> shards_;
  std::shared_ptr<const Answers> answers_;  // null if all tokens are targets
  std::int64_t seq_;
  Token end_of_text_;
  std::vector<Piece> pieces_;         // row by row
  std::vector<std::int64_t> begins_;  // of each row in pieces_
};

}  // namespace

std::unique_ptr<SampleSource> packed_samples(std::shared_ptr<const TokenShards> shards, std::int64_t seq,
                                             std::span<const std::int64_t> documents, std::int64_t end,
                                             Token end_of_text) {
  return std::make_unique<PackedSamples>(std::move(shards), seq, documents, end, end_of_text);
}

}  // namespace kozero::data
