// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampling.cpp: tokens ranked by their logits, those that sampling keeps, and the pick among them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <kozero/core/portable_math.hpp>
#include <kozero/train/sampling.hpp>

namespace kozero::train {
namespace {

/// The logit of an id; NaN counts as least likely.
float logit_of(std::span<const float> logits, Token id) {
  const float value = logits[static_cast<std::size_t>(id)];
  return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
}

/// Token ids, likeliest first, sorted lazily.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), Token{0});
  }

  Token operator[](std::size_t index) {
    if (index >= sorted_) sort_to(std::min(ids_.size(), std::max(kFirstSort, 4 * (index + 1))));
    return ids_[index];
  }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  [[nodiscard]] float logit(Token id) const { return logit_of(logits_, id); }

 private:
  static constexpr std::size_t kFirstSort = 64;

  void sort_to(std::size_t end) {
    const auto likelier = [this](Token a, Token b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
    const auto at = [this](std::size_t index) { return ids_.begin() + static_cast<std::ptrdiff_t>(index); };
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

/// The first `count` tokens of a ranking, whose weights e^((logit - highest) / temperature) have the sum `mass`.
class Kept {
 public:
  Kept(Ranking& ranking, const Sampling& sampling)
      : ranking_(ranking), temperature_(sampling.temperature), highest_(ranking.logit(ranking[0])) {
    const std::size_t all = ranking.size();
    const auto most = static_cast<std::int64_t>(all);
    count_ = static_cast<std::size_t>(sampling.top_k > 0 ? std::min(sampling.top_k, most) : most);
    if (!std::isfinite(highest_) || temperature_ == 0.0) count_ = 1;
    for (std::size_t i = 0; i < count_; ++i) mass_ += weight_of(count_ == all ? static_cast<Token>(i) : ranking[i]);
    if (sampling.top_p < 1.0) keep_mass(sampling.top_p * mass_);
    if (sampling.min_p > 0.0) keep_weights(sampling.min_p);
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] double mass() const { return mass_; }
  [[nodiscard]] double weight_of(Token id) const {
    const double logit = ranking_.logit(id);
    return logit == highest_ ? 1.0 : portable_exp((logit - highest_) / temperature_);
  }

 private:
  /// The fewest likeliest tokens that have at least this mass.
  void keep_mass(double least) {
    std::size_t count = 0;
    double mass = 0.0;
    while (count < count_ && (count == 0 || mass < least)) mass += weight_of(ranking_[count++]);
    count_ = count;
    mass_ = mass;
  }
  /// The tokens whose weight is at least `least` times that of the likeliest, which is 1.
  void keep_weights(double least) {
    std::size_t count = 0;
    double mass = 0.0;
    for (; count < count_; ++count) {
      const double weight = weight_of(ranking_[count]);
      if (count > 0 && weight < least) break;
      mass += weight;
    }
    count_ = count;
    mass_ = mass;
  }

  Ranking& ranking_;
  double temperature_;
  double highest_;
  std::size_t count_ = 0;
  double mass_ = 0.0;
};

}  // namespace

void penalize(std::span<float> logits, std::span<const Token> sequence, double penalty) {
  if (penalty == 1.0) return;
  const auto factor = static_cast<float>(penalty);
  std::vector<bool> is_done(logits.size());
  for (const Token token : sequence) {
    const auto index = static_cast<std::size_t>(token);
    if (token < 0 || index >= logits.size() || is_done[index]) continue;
    is_done[index] = true;
    logits[index] = logits[index] < 0.0F ? logits[index] * factor : logits[index] / factor;
  }
}

std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling) {
  Ranking ranking(logits);
  const Kept kept(ranking, sampling);
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < kept.count(); ++i) {
    all.push_back({ranking[i], kept.weight_of(ranking[i]) / kept.mass()});
  }
  return all;
}

Token pick_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  if (sampling.temperature == 0.0 || sampling.top_k == 1) return likeliest(logits);
  Ranking ranking(logits);
  const Kept kept(ranking, sampling);
  double left = uniform * kept.mass();
  for (std::size_t i = 0; i < kept.count(); ++i) {
    left -= kept.weight_of(ranking[i]);
    if (left < 0.0) return ranking[i];
  }
  return ranking[kept.count() - 1];
}

}  // namespace kozero::train
