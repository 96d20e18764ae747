// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_cached_decoder.cpp: decode, over a cache of keys and values, against the full forward pass.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tiny_models.hpp"

namespace kozero::tests {
namespace {

/// Rows of cached sequences, in device memory.
class CachedRows {
 public:
  struct Row {
    Token token;
    std::int32_t sequence, position;
  };
  explicit CachedRows(const std::vector<Row>& rows)
      : tokens_("tokens", rows.size()), sequences_("sequences", rows.size()), positions_("positions", rows.size()) {
    const auto tokens = Kokkos::create_mirror_view(tokens_);
    const auto sequences = Kokkos::create_mirror_view(sequences_);
    const auto positions = Kokkos::create_mirror_view(positions_);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      tokens(n) = rows[n].token;
      sequences(n) = rows[n].sequence;
      positions(n) = rows[n].position;
    }
    Kokkos::deep_copy(tokens_, tokens);
    Kokkos::deep_copy(sequences_, sequences);
    Kokkos::deep_copy(positions_, positions);
  }
  [[nodiscard]] model::TokenRows view() const {
    const auto of = [](const Storage& storage) {
      return Vector<const std::int32_t>(storage.data(), storage.extent(0));
    };
    return {of(tokens_), {of(sequences_), of(positions_)}};
  }

 private:
  using Storage = Kokkos::View<std::int32_t*, Kokkos::LayoutRight, DeviceMemory>;
  Storage tokens_, sequences_, positions_;
};

constexpr std::int64_t kVocab = 19;

/// The logits (count, V) after the last rows.
std::vector<float> decoded(TinyModel& tiny, const std::vector<CachedRows::Row>& rows, std::size_t count) {
  const Kokkos::View<float**, Kokkos::LayoutRight, DeviceMemory> logits("logits", count, kVocab);
  tiny.model->decode(tiny.access, CachedRows(rows).view(), Matrix<float>(logits.data(), count, kVocab));
  std::vector<float> values(count * kVocab);
  Kokkos::deep_copy(HostMatrix<float>(values.data(), count, kVocab), logits);
  return values;
}

std::vector<float> full_logits(TinyModel& tiny, const TokenBatch& batch, std::int64_t num_tokens) {
  const Kokkos::View<float*, Kokkos::LayoutRight, DeviceMemory> logits("logits", kVocab);
  tiny.model->next_token_logits(tiny.access, batch.view().inputs, num_tokens, Vector<float>(logits.data(), kVocab));
  std::vector<float> values(kVocab);
  Kokkos::deep_copy(HostVector<float>(values.data(), kVocab), logits);
  return values;
}

/// Whether they agree within 1e-5 of the largest.
void check_logits(const std::vector<float>& got, const std::vector<float>& expected) {
  float largest = 0.0F;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t v = 0; v < expected.size(); ++v) CHECK(std::abs(got[v] - expected[v]) <= 1e-5F * largest);
}

TEST_CASE("logits with a cache are those of the full forward, however the tokens come") {
  for (model::Config config : {tiny_gpt2(true), tiny_gpt2(false), tiny_llama(false), tiny_qwen2(true), tiny_qwen3(true),
                               in_blocks(tiny_gpt2(true), 8), in_blocks(tiny_llama(false), 16)}) {
    config.seq = 45;
    TinyModel tiny(config, 1);
    tiny.model->reserve_cache(tiny.ledger, {.sequences = 2, .positions = 45, .rows = 30});
    const auto first = TokenBatch::noise(1, 45, kVocab, 0);
    const auto second = TokenBatch::noise(1, 45, kVocab, 1);
    const auto token = [&](std::int32_t sequence, std::int64_t t) {
      const auto& batch = sequence == 0 ? first : second;
      return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), batch.view().inputs)(0, t);
    };
    const auto rows_of = [&](std::int32_t sequence, std::int32_t begin, std::int32_t end) {
      std::vector<CachedRows::Row> rows;
      for (std::int32_t t = begin; t < end; ++t) rows.push_back({token(sequence, t), sequence, t});
      return rows;
    };
    // Sequence 0 in blocks of 30 and 3 tokens, sequence 1 in one block of 5; then both by single tokens in one call.
    CHECK(decoded(tiny, rows_of(0, 0, 30), 0).empty());
    check_logits(decoded(tiny, rows_of(0, 30, 33), 1), full_logits(tiny, first, 33));
    check_logits(decoded(tiny, rows_of(1, 0, 5), 1), full_logits(tiny, second, 5));
    for (std::int32_t step = 0; step < 12; ++step) {
      const auto both = decoded(tiny, {{token(1, 5 + step), 1, 5 + step}, {token(0, 33 + step), 0, 33 + step}}, 2);
      check_logits({both.begin(), both.begin() + kVocab}, full_logits(tiny, second, 6 + step));
      check_logits({both.begin() + kVocab, both.end()}, full_logits(tiny, first, 34 + step));
    }
  }
}

TEST_CASE("a call with a cache acquires what forward acquires, the head only for logits") {
  TinyModel tiny(tiny_llama(true), 1);
  tiny.model->reserve_cache(tiny.ledger, {.sequences = 1, .positions = 7, .rows = 2});
  tiny.access.calls.clear();
  decoded(tiny, {{3, 0, 0}, {4, 0, 1}}, 0);
  CHECK(tiny.access.calls.size() == 6);
  decoded(tiny, {{5, 0, 2}}, 1);
  CHECK(tiny.access.calls.size() == 16);
  CHECK_FALSE(tiny.access.holds_any());
  CHECK_THROWS_AS(decoded(tiny, {{5, 0, 3}, {5, 0, 4}, {5, 0, 5}}, 1), Error);
}

}  // namespace
}  // namespace kozero::tests
