// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <kozero/dist/agreed.hpp>
#include <kozero/io/markov.hpp>
#include <kozero/io/prepare.hpp>
#include <kozero/model/config.hpp>
#include <kozero/train/data_set.hpp>

namespace kozero::train {
namespace {

constexpr std::int64_t kSyntheticSamples = std::int64_t{1} << 24;  ///< an epoch of a source that has no end
constexpr std::int64_t kSyntheticValidation = 256;
constexpr std::int64_t kSyntheticVocab = 64;

/// Samples [first, first + count) of the windows of a token sequence, and what lies behind its last window.
class TokenSamples final : public SampleSource {
 public:
  TokenSamples(std::shared_ptr<const io::TokenShards> shards, std::int64_t seq, std::int64_t first, std::int64_t count)
      : shards_(std::move(shards)), seq_(seq), first_(first), count_(count) {}
  [[nodiscard]] std::int64_t num_samples() const override { return count_; }
  [[nodiscard]] std::int64_t tail() const override {
    const std::int64_t behind = shards_->num_tokens() - 1 - (first_ + count_) * seq_;
    return behind < seq_ ? behind : 0;
  }
  void read(std::int64_t index, std::span<Token> window) const override {
    shards_->read((first_ + index) * seq_, window);
  }

 private:
  std::shared_ptr<const io::TokenShards> shards_;
  std::int64_t seq_;
  std::int64_t first_;
  std::int64_t count_;
};

class MarkovSamples final : public SampleSource {
 public:
  MarkovSamples(std::shared_ptr<const io::MarkovSource> source, std::int64_t first, std::int64_t count)
      : source_(std::move(source)), first_(first), count_(count) {}
  [[nodiscard]] std::int64_t num_samples() const override { return count_; }
  void read(std::int64_t index, std::span<Token> window) const override {
    source_->sample(static_cast<std::uint64_t>(first_ + index), window);
  }

 private:
  std::shared_ptr<const io::MarkovSource> source_;
  std::int64_t first_;
  std::int64_t count_;
};

/// For the linear demo, which draws a sample's numbers from its name.
class NumberedSamples final : public SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return kSyntheticSamples; }
  void read(std::int64_t /*index*/, std::span<Token> window) const override {
    std::fill(window.begin(), window.end(), Token{0});
  }
};

/// How many ids `data.tokenizer = "bpe"` learns.
std::int64_t bpe_vocab(const io::Deck& deck) {
  if (deck.model.vocab > 0) return deck.model.vocab;
  if (deck.model.preset != "none") return model::with_preset({}, deck.model.preset).vocab;
  throw Error(Failure::deck,
              "data.tokenizer = \"bpe\": give model.vocab, how many ids to learn, or write \"bpe:4096\"");
}

std::string tokenizer_spec(const io::Deck& deck) {
  return deck.data.tokenizer == "bpe" ? "bpe:" + std::to_string(bpe_vocab(deck)) : deck.data.tokenizer;
}

std::int64_t windows(const io::TokenShards& shards, std::int64_t seq) {
  return std::max<std::int64_t>(0, (shards.num_tokens() - 1) / seq);
}

std::shared_ptr<const io::TokenShards> shards_of(const io::TokenSplit& split, std::int64_t vocab) {
  return split.files.empty() ? nullptr : std::make_shared<const io::TokenShards>(split.files, vocab);
}

std::unique_ptr<SampleSource> all_windows(const std::shared_ptr<const io::TokenShards>& shards, std::int64_t seq) {
  if (shards == nullptr || shards->num_tokens() < 2) return nullptr;
  return std::make_unique<TokenSamples>(shards, seq, 0, windows(*shards, seq));
}

std::optional<double> bytes_per_token(const io::TokenSplit& split) {
  if (split.tokens == 0) return std::nullopt;
  return static_cast<double>(split.bytes) / static_cast<double>(split.tokens);
}

DataSet linear_data() {
  DataSet data;
  data.train = std::make_unique<NumberedSamples>();
  data.description = "numbers drawn from run.seed";
  return data;
}

DataSet synthetic_data(const io::Deck& deck) {
  const std::int64_t vocab = vocab_of(deck);
  const auto source = std::make_shared<const io::MarkovSource>(vocab, static_cast<std::uint64_t>(deck.run.seed));
  DataSet data;
  data.train = std::make_unique<MarkovSamples>(source, 0, kSyntheticSamples);
  if (deck.data.val_fraction > 0.0) {
    data.validation = std::make_unique<MarkovSamples>(source, kSyntheticSamples, kSyntheticValidation);
  }
  data.vocab = vocab;
  data.loss_floor = source->entropy_rate();
  data.description = fmt::format("Markov chain over {} tokens, loss floor {:.4f}", vocab, source->entropy_rate());
  return data;
}

DataSet token_data(const io::Deck& deck, std::int64_t seq) {
  DataSet data;
  data.vocab = vocab_of(deck);
  if (deck.is_set("data.tokenizer")) {
    data.tokenizer = io::make_tokenizer(deck.data.tokenizer);
    data.vocab = std::max<std::int64_t>(data.vocab, data.tokenizer->vocab_size());
  }
  const auto shards = std::make_shared<const io::TokenShards>(deck.data.tokens, data.vocab);
  const std::int64_t all = windows(*shards, seq);
  if (shards->num_tokens() < 2) {
    throw Error(Failure::deck, fmt::format("data.tokens holds {} tokens: nothing to predict", shards->num_tokens()));
  }
  const auto kept = static_cast<std::int64_t>(std::floor(static_cast<double>(all) * deck.data.val_fraction));
  data.train = std::make_unique<TokenSamples>(shards, seq, 0, all - kept);
  if (kept > 0) data.validation = std::make_unique<TokenSamples>(shards, seq, all - kept, kept);
  data.train_shards = data.validation_shards = shards;
  data.description = fmt::format("{} tokens in {} shards", shards->num_tokens(), deck.data.tokens.size());
  return data;
}

DataSet text_data(const io::Deck& deck, std::int64_t seq, const std::string& cache, dist::Communicator& comm) {
  const io::PrepareOrder order{deck.data.text, tokenizer_spec(deck), deck.data.val_fraction, cache};
  const auto notes = dist::agreed(
      comm, [&] { return comm.rank() == 0 ? io::notes_on(order, io::prepare(order)) : std::vector<std::string>(); });
  const io::PreparedTokens prepared = io::read_prepared(cache);
  DataSet data;
  data.tokenizer = io::make_tokenizer(prepared.tokenizer_file);
  data.vocab = prepared.vocab;
  data.train_shards = shards_of(prepared.train, prepared.vocab);
  data.validation_shards = shards_of(prepared.val, prepared.vocab);
  data.train = all_windows(data.train_shards, seq);
  if (data.train == nullptr) {
    throw Error(Failure::deck,
                fmt::format("data.text holds {} training tokens: nothing to predict", prepared.train.tokens));
  }
  data.validation = all_windows(data.validation_shards, seq);
  data.train_bytes_per_token = bytes_per_token(prepared.train);
  data.validation_bytes_per_token = bytes_per_token(prepared.val);
  data.description =
      fmt::format("{} + {} tokens ({}) of {:.2f} MB text", prepared.train.tokens, prepared.val.tokens,
                  prepared.tokenizer, static_cast<double>(prepared.train.bytes + prepared.val.bytes) / 1e6);
  for (const auto& note : notes) data.description += "; " + note;
  return data;
}

}  // namespace

std::int64_t vocab_of(const io::Deck& deck) {
  if (deck.model.vocab > 0) return deck.model.vocab;
  if (deck.data.synthetic && deck.model.preset == "none") return kSyntheticVocab;
  if (deck.data.synthetic) return model::with_preset({}, deck.model.preset).vocab;
  if (!deck.data.text.empty() && deck.data.tokenizer == "bpe") return bpe_vocab(deck);
  if (const auto size = io::bpe_size(deck.data.tokenizer)) return *size;
  if (deck.data.tokens.empty() || deck.is_set("data.tokenizer")) {
    return io::make_tokenizer(deck.data.tokenizer)->vocab_size();
  }
  if (deck.model.preset != "none") return model::with_preset({}, deck.model.preset).vocab;
  throw Error(Failure::deck,
              "data.tokens: the shards do not say how many tokens there are; give model.vocab, or the "
              "tokenizer file as data.tokenizer");
}

DataSet open_data(const io::Deck& deck, std::int64_t seq, const std::string& cache, dist::Communicator& comm) {
  return dist::agreed(comm, [&] {
    if (deck.model.arch == "linear") return linear_data();
    if (deck.data.synthetic) return synthetic_data(deck);
    if (!deck.data.tokens.empty()) return token_data(deck, seq);
    return text_data(deck, seq, cache, comm);
  });
}

void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq) {
  if (data.train->num_samples() > 0) return;
  throw Error(Failure::deck,
              fmt::format("{} holds {} training tokens, not one sample of model.seq + 1 = {}",
                          deck.data.tokens.empty() ? "data.text" : "data.tokens", data.train->tail() + 1, seq + 1));
}

}  // namespace kozero::train
