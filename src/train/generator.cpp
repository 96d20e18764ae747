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

/// Token ids, likeliest first, cut to the top_k. NaN is the least likely.
std::vector<Token> candidates(std::span<const float> logits, std::int64_t top_k) {
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), Token{0});
  const auto logit = [&](Token id) {
    const float value = logits[static_cast<std::size_t>(id)];
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  };
  const auto likelier = [&](Token a, Token b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
  std::sort(ids.begin(), ids.end(), likelier);
  if (top_k > 0 && top_k < static_cast<std::int64_t>(ids.size())) ids.resize(static_cast<std::size_t>(top_k));
  return ids;
}

/// How many of the leading probabilities reach the mass top_p of their sum.
std::size_t nucleus(const std::vector<double>& weights, double top_p) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double mass = 0.0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || mass < top_p * all)) mass += weights[count++];
  return count;
}

}  // namespace

Token pick_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const std::vector<Token> ids = candidates(logits, sampling.temperature == 0.0 ? 1 : sampling.top_k);
  if (ids.size() == 1) return ids.front();
  const double highest = logits[static_cast<std::size_t>(ids.front())];
  std::vector<double> weights;
  for (const Token id : ids) {
    weights.push_back(std::exp((logits[static_cast<std::size_t>(id)] - highest) / sampling.temperature));
  }
  weights.resize(nucleus(weights, sampling.top_p));
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0.0) return ids[i];
  }
  return ids[weights.size() - 1];
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
