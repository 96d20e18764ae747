// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// cross_entropy.hpp: the negative log-likelihood of each row's target under the softmax of its logits, with gradient.
//   loss(n) = m + log(sum_v exp(x(n,v) - m)) - x(n, target(n))        m = max_v x(n,v)
//   d loss(n) / d x(n,v) = softmax(x(n,:))(v) - [v = target(n)]       x (N, V)   losses, targets (N)
// cross_entropy writes scale times the gradient over the logits, so no second (N, V) array exists. V > 0, and targets
// are in [0, V), or kIgnoredTarget: such a row has loss 0 and gradient 0. Logits may have more than V columns: the
// extra columns are ignored, and their gradient is zero. With the vocabulary in blocks, the logits of one block exist
// at a time and are computed twice. add_to_softmax updates SoftmaxOfRows, put_losses computes the losses from it, and
// softmax_gradient overwrites the block's logits with the gradient:
//   m' = max(m, max_v x(n,v))      s' = s exp(m - m') + sum_v exp(x(n,v) - m')
//   loss(n) = m - x(n, target(n)) + log(s)
// (Milakov, Gimelshein 2018, "Online normalizer calculation for softmax", arXiv:1805.02867). With a single block, the
// bits are those of cross_entropy.
// Sums are in float by fixed lanes: a row's bits depend on the row alone. A row with a NaN has a NaN loss.
// Runs on `space`; returns without fencing.
#pragma once
#include <cstdint>
#include <Kokkos_Core.hpp>
#include <type_traits>

#include <kozero/core/batch.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/portable_math.hpp>
#include <kozero/core/views.hpp>
#include "kernels/launch/for_each.hpp"
#include "kernels/launch/inputs.hpp"
#include "kernels/launch/reduce.hpp"
#include "kernels/launch/vector_math.hpp"

namespace kozero::kernels {

template <class Logits>
void require_targets(const Vector<float>& losses, const Logits& logits, const Vector<const Token>& targets,
                     std::int64_t vocabulary) {
  require(vocabulary <= static_cast<std::int64_t>(logits.extent(1)), "cross_entropy: logits with too few columns");
  require(losses.extent(0) == logits.extent(0) && targets.extent(0) == logits.extent(0),
          "cross_entropy: losses and targets must have one element for each row of the logits");
}

/// exp(x - largest).
KOKKOS_INLINE_FUNCTION float exp_below(float x, float largest) { return fast_exp2((x - largest) * kLog2E); }

/// Computes the losses only.
template <class Space, class T>
static void cross_entropy_forward(const Space& space, Vector<float> losses, Matrix<T> logits,
                                  Vector<const Token> targets, std::int64_t vocabulary) {
  require_targets(losses, logits, targets, vocabulary);
  for_each_long_row(
      space, "kozero::cross_entropy_forward", static_cast<std::int64_t>(logits.extent(0)),
      KOKKOS_LAMBDA(const WholeTeam<RowTeam<Space>>& team, std::int64_t n) {
        const auto* const x = row_of(logits, n);
        const std::int64_t target = targets(n);
        const float target_logit = target == kIgnoredTarget ? 0.0F : static_cast<float>(x[target]);
        const float largest = row_max(team, vocabulary, x);
        const float sum = row_sum(
            team, vocabulary, [=](float logit) { return exp_below(logit, largest); }, x);
        const float loss = largest - target_logit + portable_log(sum);
        once_per_row(team, [&]() { losses(n) = target == kIgnoredTarget ? 0.0F : loss; });
      });
}

/// The losses, and scale times the gradient in place of the logits.
template <class Space, class T>
static void cross_entropy(const Space& space, Vector<float> losses, Matrix<T> logits, Vector<const Token> targets,
                          std::int64_t vocabulary, float scale) {
  require_targets(losses, logits, targets, vocabulary);
  const auto columns = static_cast<std::int64_t>(logits.extent(1));
  // Whether a row's exponentials replace its logits, so that they are computed once: not if they would be rounded to 16
  // bits, nor on a GPU, where the kernel is bound by memory.
  constexpr bool kKeepsPowers = runs_on_host<Space> && std::is_same_v<T, float>;
  for_each_long_row(
      space, "kozero::cross_entropy", static_cast<std::int64_t>(logits.extent(0)),
      KOKKOS_LAMBDA(const WholeTeam<RowTeam<Space>>& team, std::int64_t n) {
        T* const x = row_of(logits, n);
        const std::int64_t target = targets(n);
        const bool counts = target != kIgnoredTarget;
        const float target_logit = counts ? static_cast<float>(x[target]) : 0.0F;
        const float largest = row_max(team, vocabulary, x);
        const auto power = [=](float logit) { return kKeepsPowers ? logit : exp_below(logit, largest); };
        if constexpr (kKeepsPowers) {
          assign_row(
              team, x, vocabulary, [=](float logit) { return exp_below(logit, largest); }, x);
        }
        const float sum = row_sum(team, vocabulary, power, x);
        const float factor = counts ? scale / sum : 0.0F;
        assign_row(
            team, x, vocabulary, [=](float logit) { return factor * power(logit); }, x);
        assign_row(team, x + vocabulary, columns - vocabulary, []() { return 0.0F; });
        meet(team);
        once_per_row(team, [&]() {
          losses(n) = counts ? largest - target_logit + portable_log(sum) : 0.0F;
          if (counts) x[target] = static_cast<T>(factor * exp_below(target_logit, largest) - scale);
        });
      });
}

/// The softmax statistics of each row over the blocks added so far.
struct SoftmaxOfRows {
  Vector<float> largest;  ///< m
  Vector<float> sum;      ///< of exp(x - m)
  Vector<float> target;   ///< the target's logit
};

/// Columns [0, count) of the logits belong to tokens [first, first + count).
struct LogitBlock {
  std::int64_t first, count;

  /// The target's column; -1 if the target is in another block or ignored.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t column_of(std::int64_t token) const {
    return token >= first && token < first + count ? token - first : -1;
  }
};

/// Adds a block's logits; the first block starts new statistics.
template <class Space, class T>
static void add_to_softmax(const Space& space, const SoftmaxOfRows& softmax, Matrix<T> logits,
                           Vector<const Token> targets, const LogitBlock& block, bool begins) {
  require_targets(softmax.sum, logits, targets, block.count);
  for_each_long_row(
      space, "kozero::add_to_softmax", static_cast<std::int64_t>(logits.extent(0)),
      KOKKOS_LAMBDA(const WholeTeam<RowTeam<Space>>& team, std::int64_t n) {
        const auto* const x = row_of(logits, n);
        const float before = begins ? 0.0F : softmax.largest(n);
        const float sum_before = begins ? 0.0F : softmax.sum(n);
        const float of_block = row_max(team, block.count, x);
        const float largest = begins || of_block > before ? of_block : before;
        const float sum = row_sum(
            team, block.count, [=](float logit) { return exp_below(logit, largest); }, x);
        const std::int64_t target = block.column_of(targets(n));
        meet(team);
        once_per_row(team, [&]() {
          softmax.largest(n) = largest;
          softmax.sum(n) = begins ? sum : sum_before * exp_below(before, largest) + sum;
          if (target >= 0) softmax.target(n) = static_cast<float>(x[target]);
        });
      });
}

/// Computes the losses of rows whose blocks were all added.
template <class Space>
static void put_losses(const Space& space, Vector<float> losses, const SoftmaxOfRows& softmax,
                       Vector<const Token> targets) {
  for_each_element(
      space, "kozero::put_losses", static_cast<std::int64_t>(losses.extent(0)), KOKKOS_LAMBDA(std::int64_t n) {
        const float loss = softmax.largest(n) - softmax.target(n) + portable_log(softmax.sum(n));
        losses(n) = targets(n) == kIgnoredTarget ? 0.0F : loss;
      });
}

/// Scale times the gradient in place of a block's logits.
template <class Space, class T>
static void softmax_gradient(const Space& space, Matrix<T> logits, const SoftmaxOfRows& softmax,
                             Vector<const Token> targets, const LogitBlock& block, float scale) {
  require_targets(softmax.sum, logits, targets, block.count);
  const auto columns = static_cast<std::int64_t>(logits.extent(1));
  for_each_long_row(
      space, "kozero::softmax_gradient", static_cast<std::int64_t>(logits.extent(0)),
      KOKKOS_LAMBDA(const WholeTeam<RowTeam<Space>>& team, std::int64_t n) {
        T* const x = row_of(logits, n);
        const std::int64_t target = block.column_of(targets(n));
        const float largest = softmax.largest(n);
        const float factor = targets(n) == kIgnoredTarget ? 0.0F : scale / softmax.sum(n);
        assign_row(
            team, x, block.count, [=](float logit) { return factor * exp_below(logit, largest); }, x);
        assign_row(team, x + block.count, columns - block.count, []() { return 0.0F; });
        meet(team);
        once_per_row(team, [&]() {
          if (target >= 0) x[target] = static_cast<T>(factor * exp_below(softmax.target(n), largest) - scale);
        });
      });
}

}  // namespace kozero::kernels
