// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_source.cpp: the samples of token shards, and the source data.tokens.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include "io/deck/check.hpp"
#include "src/data/answers.hpp"
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

class TokenSamples final : public SampleSource {
 public:
  TokenSamples(std::shared_ptr<const TokenShards> shards, std::int64_t seq, std::int64_t first, std::int64_t count,
               Token document_start, const Share& part)
      : shards_(std::move(shards)),
        answers_(Answers::of(*shards_)),
        seq_(seq),
        first_(first),
        count_(count),
        document_start_(document_start),
        part_(part.count == 0 ? Share{0, shards_->num_tokens()} : part) {
    if (answers_ != nullptr) conversations_ = shards_->documents(document_start);
  }
  [[nodiscard]] std::int64_t num_samples() const override { return count_; }
  [[nodiscard]] std::int64_t tail() const override {
    const std::int64_t behind = part_.count - 1 - (first_ + count_) * seq_;
    return behind < seq_ ? behind : 0;
  }
  void read(std::int64_t index, std::span<Token> window) const override {
    shards_->read(part_.first + (first_ + index) * seq_, window);
  }
  void change_targets(std::int64_t index, std::span<Token> targets) const override {
    if (answers_ != nullptr) answers_->keep_trained(part_.first + (first_ + index) * seq_ + 1, targets);
  }
  [[nodiscard]] std::int64_t ignored_targets(std::int64_t index) const override {
    if (answers_ == nullptr) return 0;
    const std::int64_t count = index == count_ ? tail() : seq_;
    const std::int64_t first = part_.first + (first_ + index) * seq_ + 1;
    return count - answers_->count(first, first + count);
  }
  [[nodiscard]] Token document_start() const override { return document_start_; }
  /// Conversations of the plain template have the end-of-text token behind each answer.
  void find_documents(std::int64_t index, std::span<const Token> inputs,
                      std::vector<std::int32_t>& begins) const override {
    if (answers_ == nullptr) return SampleSource::find_documents(index, inputs, begins);
    const std::int64_t first = part_.first + (first_ + index) * seq_;
    auto next = std::ranges::upper_bound(conversations_, first);
    for (; next != conversations_.end() && *next < first + std::ssize(inputs); ++next) {
      begins.push_back(static_cast<std::int32_t>(*next - first));
    }
  }

 private:
  std::shared_ptr<const TokenShards> shards_;
  std::shared_ptr<const Answers> answers_;  // null if all targets count
  std::int64_t seq_;
  std::int64_t first_;
  std::int64_t count_;
  Token document_start_;
  Share part_;                               ///< the tokens of the shards that are the sequence
  std::vector<std::int64_t> conversations_;  ///< where they begin in the shards
};

}  // namespace

std::unique_ptr<SampleSource> token_samples(std::shared_ptr<const TokenShards> shards, std::int64_t seq,
                                            std::int64_t first, std::int64_t count, Token document_start,
                                            const Share& part) {
  return std::make_unique<TokenSamples>(std::move(shards), seq, first, count, document_start, part);
}

std::int64_t windows_of(std::int64_t tokens, std::int64_t seq) { return std::max<std::int64_t>(0, (tokens - 1) / seq); }

std::int64_t vocab_of_tokens(const io::Deck& deck) {
  if (const auto size = io::bpe_size(deck.data.tokenizer)) return *size;
  if (deck.is_set("data.tokenizer")) return io::make_tokenizer(deck.data.tokenizer)->vocab_size();
  if (deck.model.preset != "none") return vocab_of_preset(deck);
  throw Error(Failure::deck,
              "data.tokens: the shards do not say how many tokens there are; give model.vocab, or the "
              "tokenizer file as data.tokenizer");
}

DataSet open_tokens(const OpenOrder& order) {
  const io::Deck& deck = order.deck;
  DataSet data;
  data.vocab = vocab_of(deck);
  if (deck.is_set("data.tokenizer")) {
    data.tokenizer = io::make_tokenizer(deck.data.tokenizer);
    data.vocab = std::max<std::int64_t>(data.vocab, data.tokenizer->vocab_size());
  }
  const auto shards = std::make_shared<const TokenShards>(deck.data.tokens, data.vocab);
  const std::int64_t all = windows_of(shards->num_tokens(), order.seq);
  if (shards->num_tokens() < 2) {
    throw Error(Failure::deck, fmt::format("data.tokens holds {} tokens: nothing to predict", shards->num_tokens()));
  }
  if (deck.data.chat_template != "none" && !shards->answers()) {
    io::refuse_value(deck, "data.chat_template",
                     "the shards of data.tokens have no .answers beside them; make them by `kozero prepare "
                     "--chat-template`, or leave the key out");
  }
  require_documents(data.tokenizer.get(), deck);
  const Token start = data.tokenizer == nullptr ? -1 : data.tokenizer->end_of_text();
  const auto kept_of = [&](std::int64_t count) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(count) * deck.data.val_fraction));
  };
  if (packs_documents(deck)) {
    const std::vector<std::int64_t> documents = shards->documents(start);
    const auto used = static_cast<std::size_t>(std::ssize(documents) - kept_of(std::ssize(documents)));
    const std::span kept = std::span(documents).subspan(used);
    const std::int64_t end = kept.empty() ? shards->num_tokens() : kept.front();
    data.train = packed_samples(shards, order.seq, std::span(documents).first(used), end, start);
    if (!kept.empty()) data.validation = packed_samples(shards, order.seq, kept, shards->num_tokens(), start);
  } else {
    const std::int64_t kept = kept_of(all);
    data.train = token_samples(shards, order.seq, 0, all - kept, start);
    if (kept > 0) data.validation = token_samples(shards, order.seq, all - kept, kept, start);
  }
  data.train_shards = data.validation_shards = shards;
  data.description = fmt::format("{} tokens in {} shards", shards->num_tokens(), deck.data.tokens.size());
  return data;
}

}  // namespace kozero::data
