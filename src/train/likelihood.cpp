// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// likelihood.cpp: sequences as samples of the evaluator, one per batch.
#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/train/likelihood.hpp>

namespace kozero::train {
namespace {

/// One sequence, as the tail of a source without whole samples, or as a whole sample.
class OneSequence final : public data::SampleSource {
 public:
  OneSequence(const data::ScoredTokens& scored, std::int64_t seq) : scored_(scored), is_whole_(targets() == seq) {}

  [[nodiscard]] std::int64_t targets() const { return std::ssize(scored_.tokens) - 1; }
  [[nodiscard]] std::int64_t num_samples() const override { return is_whole_ ? 1 : 0; }
  [[nodiscard]] std::int64_t tail() const override { return is_whole_ ? 0 : targets(); }
  void read(std::int64_t /*index*/, std::span<Token> window) const override {
    require(window.size() == scored_.tokens.size(), "a sequence is read whole");
    std::ranges::copy(scored_.tokens, window.begin());
  }
  void change_targets(std::int64_t /*index*/, std::span<Token> targets) const override {
    std::ranges::fill(targets.first(targets.size() - static_cast<std::size_t>(scored_.scored)), kIgnoredTarget);
  }
  [[nodiscard]] std::int64_t ignored_targets(std::int64_t /*index*/) const override {
    return targets() - scored_.scored;
  }
  void find_documents(std::int64_t /*index*/, std::span<const Token> /*inputs*/,
                      std::vector<std::int32_t>& /*begins*/) const override {}

 private:
  const data::ScoredTokens& scored_;
  bool is_whole_;
};

}  // namespace

std::size_t sequences_of_rank(std::size_t count, const distributed::Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  return (count + ranks - 1 - static_cast<std::size_t>(comm.rank())) / ranks;
}

std::vector<double> log_likelihoods(Evaluator& evaluator, const std::vector<data::ScoredTokens>& mine,
                                    std::size_t count) {
  distributed::Communicator& comm = evaluator.comm();
  data::BatchLoader& loader = evaluator.loader();
  require(mine.size() == sequences_of_rank(count, comm), "log_likelihoods: another number of sequences");
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t rounds = (count + ranks - 1) / ranks;
  // Every rank makes as many calls as rank 0, since a call may gather parameters.
  static const data::ScoredTokens kNone;
  std::vector<double> losses;
  for (std::size_t round = 0; round < rounds; ++round) {
    const bool has_one = round < mine.size();
    const OneSequence source(has_one ? mine[round] : kNone, evaluator.seq());
    const bool is_whole = source.num_samples() == 1;
    losses.push_back(evaluator.evaluate(!has_one   ? loader.load(source, {})
                                        : is_whole ? loader.load(source, {data::SampleName{}})
                                                   : loader.load_tail(source)));
  }
  const std::vector<double> all = distributed::from_all_ranks(comm, losses);
  for (const double loss : all) {
    if (std::isfinite(loss)) continue;
    throw Error(Failure::non_finite,
                fmt::format("a log-likelihood is {}, though every weight is finite: numbers computed from the weights "
                            "overflow; f32 (train.precision) has the widest range",
                            -loss),
                Error::Seen::by_all_ranks);
  }
  std::vector<double> in_order;
  for (std::size_t i = 0; i < count; ++i) in_order.push_back(-all[i % ranks * rounds + i / ranks]);
  return in_order;
}

}  // namespace kozero::train
