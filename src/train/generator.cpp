// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/train/generator.hpp>

namespace kozero::train {
namespace {

/// The logit of an id, NaN being the least likely.
float logit_of(std::span<const float> logits, Token id) {
  const float value = logits[static_cast<std::size_t>(id)];
  return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
}

/// Token ids, likeliest first, sorted only as far as they are asked for.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), Token{0});
  }

  Token operator[](std::size_t place) {
    if (place >= sorted_) sort_to(std::min(ids_.size(), std::max(kFirstSort, 4 * (place + 1))));
    return ids_[place];
  }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  [[nodiscard]] float logit(Token id) const { return logit_of(logits_, id); }

 private:
  static constexpr std::size_t kFirstSort = 64;

  void sort_to(std::size_t end) {
    const auto likelier = [this](Token a, Token b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
    const auto at = [this](std::size_t place) { return ids_.begin() + static_cast<std::ptrdiff_t>(place); };
    if (end < ids_.size()) std::nth_element(at(sorted_), at(end), ids_.end(), likelier);
    std::sort(at(sorted_), at(end), likelier);
    sorted_ = end;
  }

  std::span<const float> logits_;
  std::vector<Token> ids_;
  std::size_t sorted_ = 0;
};

Token likeliest(std::span<const float> logits) {
  Token best = 0;
  for (Token id = 1; id < static_cast<Token>(logits.size()); ++id) {
    if (logit_of(logits, id) > logit_of(logits, best)) best = id;
  }
  return best;
}

}  // namespace

Token pick_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  if (sampling.temperature == 0.0 || sampling.top_k == 1) return likeliest(logits);
  Ranking ranking(logits);
  const auto most = static_cast<std::int64_t>(ranking.size());
  const auto kept = static_cast<std::size_t>(sampling.top_k > 0 ? std::min(sampling.top_k, most) : most);
  const double highest = ranking.logit(ranking[0]);
  if (!std::isfinite(highest)) return ranking[0];
  const auto weight = [&](Token id) { return std::exp((ranking.logit(id) - highest) / sampling.temperature); };

  double all = 0.0;
  for (std::size_t i = 0; i < kept; ++i) all += weight(kept == ranking.size() ? static_cast<Token>(i) : ranking[i]);
  double mass = sampling.top_p < 1.0 ? 0.0 : all;
  std::size_t count = sampling.top_p < 1.0 ? 0 : kept;  // the nucleus: the likeliest that reach top_p
  while (sampling.top_p < 1.0 && count < kept && (count == 0 || mass < sampling.top_p * all)) {
    mass += weight(ranking[count++]);
  }
  double left = uniform * mass;
  for (std::size_t i = 0; i < count; ++i) {
    left -= weight(ranking[i]);
    if (left < 0.0) return ranking[i];
  }
  return ranking[count - 1];
}

Generator::Generator(model::Network& network, dist::Communicator& comm, std::int64_t vocab, MemoryLedger& ledger)
    : network_(network),
      comm_(comm),
      vocab_(vocab),
      context_(ledger.take<Token>(Memory::workspace, "generation context", 1, network.config().seq)),
      logits_(ledger.take<float>(Memory::workspace, "generation logits", network.config().vocab)),
      host_context_(context_.extent(1)),
      host_logits_(logits_.extent(0)) {}

std::vector<Token> Generator::continued(const std::vector<Token>& prompt, std::int64_t count,
                                        const Sampling& sampling) {
  require(!prompt.empty(), "a generation needs at least one token to follow");
  const std::uint64_t key = stream_key(sampling.seed, "generate");
  std::vector<Token> tokens = prompt;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto logits = logits_after(tokens);
    const double uniform = uniform_of(philox(key, counter_of(static_cast<std::uint64_t>(i))).x[0]);
    const Token mine = pick_token(logits.first(static_cast<std::size_t>(vocab_)), sampling, uniform);
    std::string agreed(sizeof(Token), '\0');
    std::memcpy(agreed.data(), &mine, sizeof(Token));
    agreed = comm_.broadcast_control(agreed);
    Token next = 0;
    std::memcpy(&next, agreed.data(), sizeof(Token));
    tokens.push_back(next);
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

std::span<const float> Generator::logits_after(const std::vector<Token>& tokens) {
  const auto seen = std::min(tokens.size(), host_context_.size());
  std::fill(host_context_.begin(), host_context_.end(), Token{0});
  std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(), host_context_.begin());
  Kokkos::deep_copy(context_, HostMatrix<Token>(host_context_.data(), 1, host_context_.size()));
  network_.next_token_logits(context_, static_cast<std::int64_t>(seen), logits_);
  Kokkos::deep_copy(HostVector<float>(host_logits_.data(), host_logits_.size()), logits_);
  return host_logits_;
}

}  // namespace kozero::train
