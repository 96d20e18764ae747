// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// data_set.cpp: the sampler's permutation, the batch loader's buffers, and the opening of text, tokens and synthetic
// data.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include <kozero/core/architecture.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/config.hpp>
#include <kozero/train/data_set.hpp>
#include "io/run/run_folder.hpp"
#include "io/text/markov.hpp"
#include "io/text/prepare.hpp"
#include "io/text/token_cache.hpp"

namespace kozero::train {

double sum_over_granules(const std::vector<double>& values, int ranks, std::int64_t granules) {
  const auto micro_steps = std::ssize(values) / ranks;
  double sum = 0.0;
  for (std::int64_t g = 0; g < granules; ++g) {
    sum += values.at(static_cast<std::size_t>(g % ranks * micro_steps + g / ranks));
  }
  return sum;
}

Sampler::Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch)
    : seed_(seed), num_samples_(num_samples), global_batch_(global_batch) {
  if (num_samples < 1) {
    throw Error(Failure::deck,
                "the data hold no whole sample of model.seq + 1 tokens: give more text or a smaller seq");
  }
}

double Sampler::epochs_after(std::int64_t step) const {
  if (step < 1) return 0.0;
  const Share now = positions(step);
  return static_cast<double>(epoch(step)) +
         static_cast<double>(now.first + now.count) / static_cast<double>(num_samples_);
}

Share Sampler::positions(std::int64_t step) const {
  const std::int64_t first = (step - 1) % steps_per_epoch() * global_batch_;
  return Share{first, std::min(global_batch_, num_samples_ - first)};
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t position) const {
  const std::uint64_t key = stream_key(seed_, "epoch." + std::to_string(epoch));
  return static_cast<std::int64_t>(
      permuted(key, static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(num_samples_)));
}

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
  host_tokens_ = Pinned<Token>("kozero::train::tokens", turns_, tokens_.extent(0));
  host_ids_ = Pinned<std::uint64_t>("kozero::train::sample_ids", turns_, sample_ids_.extent(0));
  window_.resize(static_cast<std::size_t>(seq + 1));
}

model::Batch BatchLoader::load(const SampleSource& source, const std::vector<SampleName>& names) {
  return load(source, names, seq_);
}

model::Batch BatchLoader::load_tail(const SampleSource& source) {
  require(source.tail() > 0 && source.tail() < seq_, "a tail has more than no and fewer than model.seq targets");
  return load(source, {SampleName{0, source.num_samples()}}, source.tail());
}

model::Batch BatchLoader::load(const SampleSource& source, const std::vector<SampleName>& names, std::int64_t seq) {
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
  return model::Batch{as_matrix(slice(all, 0, count), rows, seq), as_matrix(slice(all, count, count), rows, seq), ids};
}

namespace {

constexpr std::int64_t kSyntheticSamples = std::int64_t{1} << 24;  ///< samples of an epoch of an endless source
constexpr std::int64_t kSyntheticValidation = 256;
constexpr std::int64_t kSyntheticVocab = 64;

/// Samples [first, first + count) of the windows of a token sequence, and the length of the tail after its last window.
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

/// For the linear demo, which draws a sample's numbers from its sample id.
class NumberedSamples final : public SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return kSyntheticSamples; }
  void read(std::int64_t /*index*/, std::span<Token> window) const override {
    std::fill(window.begin(), window.end(), Token{0});
  }
};

/// The vocabulary size that `data.tokenizer = "bpe"` learns.
std::int64_t bpe_vocab(const io::Deck& deck) {
  if (deck.model.vocab > 0) return deck.model.vocab;
  if (deck.model.preset != "none") return model::with_preset({}, deck.model.preset).vocab;
  throw Error(Failure::deck,
              "data.tokenizer = \"bpe\": give model.vocab, how many ids to learn, or write \"bpe:4096\"");
}

std::string tokenizer_spec(const io::Deck& deck) {
  return deck.data.tokenizer == "bpe" ? "bpe:" + std::to_string(bpe_vocab(deck)) : deck.data.tokenizer;
}

/// The split of a learned tokenizer: that of the network as which transformers loads the model. Llama with biases on
/// q, k and v is exported as Qwen2.
std::string learned_split(const io::Deck& deck) {
  return architecture(deck.model.qkv_bias ? "qwen2" : deck.model.arch).split;
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

/// Rank 0 makes the tokens, or finds them in the cache; all ranks read them there.
DataSet text_data(const io::Deck& deck, std::int64_t seq, distributed::Communicator& comm) {
  const io::PrepareOrder order{deck.data.text, tokenizer_spec(deck), deck.data.val_fraction, token_cache_of(deck),
                               learned_split(deck)};
  io::PreparedTokens found;  // rank 0's
  const std::string folder = distributed::from_first_rank(comm, [&] {
    found = io::prepare_in_cache(order, [](const std::string& line) { distributed::print_notice(escaped(line)); });
    return std::filesystem::absolute(found.folder).lexically_normal().string();
  });
  const io::PreparedTokens prepared = io::read_prepared(folder);
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
  data.description += fmt::format(" {} {}", found.reused ? "from" : "now in", found.folder);
  if (data.tokenizer->end_of_text() >= 0) {
    data.description += fmt::format("; each file begins with end-of-text (id {})", data.tokenizer->end_of_text());
  }
  for (const auto& note : io::notes_on(order, found)) data.description += "; " + note;
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

std::string token_cache_of(const io::Deck& deck) {
  if (!deck.data.cache.empty()) return deck.data.cache;
  return (std::filesystem::path(io::without_trailing_slash(deck.run.dir)).parent_path() / ".tokens").string();
}

DataSet open_data(const io::Deck& deck, std::int64_t seq, distributed::Communicator& comm) {
  return distributed::agreed(comm, [&] {
    if (!architecture(deck.model.arch).decoder) return linear_data();
    if (deck.data.synthetic) return synthetic_data(deck);
    if (!deck.data.tokens.empty()) return token_data(deck, seq);
    return text_data(deck, seq, comm);
  });
}

void require_whole_sample(const DataSet& data, const io::Deck& deck, std::int64_t seq) {
  if (data.train->num_samples() > 0) return;
  throw Error(Failure::deck,
              fmt::format("{} holds {} training tokens, not one sample of model.seq + 1 = {}",
                          deck.data.tokens.empty() ? "data.text" : "data.tokens", data.train->tail() + 1, seq + 1));
}

}  // namespace kozero::train
