// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_batch.hpp: a Batch that owns its device memory, filled from host lists.
#pragma once
#include <vector>

#include <kozero/core/random.hpp>
#include <kozero/model/model.hpp>

namespace kozero::tests {

class TokenBatch {
 public:
  /// `inputs` and `targets` hold B * positions tokens; sequence b has sample id first_sample + b.
  TokenBatch(const std::vector<Token>& inputs, const std::vector<Token>& targets, std::int64_t positions,
             std::uint64_t first_sample = 0)
      : positions_(positions),
        num_sequences_(static_cast<std::int64_t>(inputs.size()) / positions),
        inputs_("inputs", inputs.size()),
        targets_("targets", targets.size()),
        sample_ids_("sample_ids", static_cast<std::size_t>(num_sequences_)) {
    Kokkos::deep_copy(inputs_, HostVector<const Token>(inputs.data(), inputs.size()));
    Kokkos::deep_copy(targets_, HostVector<const Token>(targets.data(), targets.size()));
    const auto ids = Kokkos::create_mirror_view(sample_ids_);
    for (std::size_t b = 0; b < ids.extent(0); ++b) ids(b) = first_sample + b;
    Kokkos::deep_copy(sample_ids_, ids);
  }

  /// Tokens that are a function of (sample, position).
  static TokenBatch noise(std::int64_t num_sequences, std::int64_t positions, std::int64_t vocab,
                          std::uint64_t first_sample = 0) {
    std::vector<Token> inputs;
    std::vector<Token> targets;
    const auto token = [&](std::int64_t b, std::int64_t t) {
      const auto sample = first_sample + static_cast<std::uint64_t>(b);
      const auto word = philox(17, counter_of(static_cast<std::uint64_t>(t), sample)).x[0];
      return static_cast<Token>(word % static_cast<std::uint32_t>(vocab));
    };
    for (std::int64_t b = 0; b < num_sequences; ++b) {
      for (std::int64_t t = 0; t < positions; ++t) {
        inputs.push_back(token(b, t));
        targets.push_back(token(b, t + 1));
      }
    }
    return TokenBatch(inputs, targets, positions, first_sample);
  }

  [[nodiscard]] model::Batch view() const { return part(0, num_sequences_); }
  /// Sequences [first, first + count).
  [[nodiscard]] model::Batch part(std::int64_t first, std::int64_t count) const {
    const auto rows = static_cast<std::size_t>(count);
    const auto columns = static_cast<std::size_t>(positions_);
    return model::Batch{Matrix<const Token>(inputs_.data() + first * positions_, rows, columns),
                        Matrix<const Token>(targets_.data() + first * positions_, rows, columns),
                        Vector<const std::uint64_t>(sample_ids_.data() + first, rows)};
  }

 private:
  template <class T>
  using Storage = Kokkos::View<T*, Kokkos::LayoutRight, DeviceMemory>;

  std::int64_t positions_;
  std::int64_t num_sequences_;
  Storage<Token> inputs_;
  Storage<Token> targets_;
  Storage<std::uint64_t> sample_ids_;
};

}  // namespace kozero::tests
