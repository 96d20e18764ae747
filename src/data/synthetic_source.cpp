// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// synthetic_source.cpp: data without files: samples of a Markov chain, and numbered samples for the linear demo.
#include <fmt/format.h>
#include <algorithm>

#include "src/data/markov.hpp"
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

constexpr std::int64_t kSyntheticSamples = std::int64_t{1} << 24;  ///< samples of an epoch of an endless source
constexpr std::int64_t kSyntheticValidation = 256;
constexpr std::int64_t kSyntheticVocab = 64;

class MarkovSamples final : public SampleSource {
 public:
  MarkovSamples(std::shared_ptr<const MarkovSource> source, std::int64_t first, std::int64_t count)
      : source_(std::move(source)), first_(first), count_(count) {}
  [[nodiscard]] std::int64_t num_samples() const override { return count_; }
  void read(std::int64_t index, std::span<Token> window) const override {
    source_->sample(static_cast<std::uint64_t>(first_ + index), window);
  }

 private:
  std::shared_ptr<const MarkovSource> source_;
  std::int64_t first_;
  std::int64_t count_;
};

/// For the linear demo, which draws a sample's numbers from its sample id.
class NumberedSamples final : public SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return kSyntheticSamples; }
  void read(std::int64_t /*index*/, std::span<Token> window) const override {
    std::fill(window.begin(), window.end(), Token{0});
  }
};

}  // namespace

std::int64_t vocab_of_synthetic(const io::Deck& deck) {
  return deck.model.preset == "none" ? kSyntheticVocab : vocab_of_preset(deck);
}

DataSet open_linear(const OpenOrder& /*order*/) {
  DataSet data;
  data.train = std::make_unique<NumberedSamples>();
  data.description = "numbers drawn from run.seed";
  return data;
}

DataSet open_synthetic(const OpenOrder& order) {
  const std::int64_t vocab = vocab_of(order.deck);
  const auto source = std::make_shared<const MarkovSource>(vocab, static_cast<std::uint64_t>(order.deck.run.seed));
  DataSet data;
  data.train = std::make_unique<MarkovSamples>(source, 0, kSyntheticSamples);
  if (order.deck.data.val_fraction > 0.0) {
    data.validation = std::make_unique<MarkovSamples>(source, kSyntheticSamples, kSyntheticValidation);
  }
  data.vocab = vocab;
  data.loss_floor = source->entropy_rate();
  data.description = fmt::format("Markov chain over {} tokens, loss floor {:.4f}", vocab, source->entropy_rate());
  return data;
}

}  // namespace kozero::data
