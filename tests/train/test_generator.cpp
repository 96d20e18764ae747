// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_generator.cpp: CachedGenerator gives the text of Generator, which runs the whole window for every token.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>
#include <vector>

#include <kozero/train/generator.hpp>

#include "groups.hpp"
#include "tiny_run.hpp"

using namespace kozero;
using train::Sampling;

namespace {

/// The tokens of each sequence, and how it ended.
struct Heard final : train::TokenListener {
  explicit Heard(std::int64_t sequences)
      : tokens(static_cast<std::size_t>(sequences)), ends(static_cast<std::size_t>(sequences), -1) {}
  void on_token(std::int64_t sequence, Token token) override {
    tokens[static_cast<std::size_t>(sequence)].push_back(token);
  }
  void on_end(std::int64_t sequence, bool by_its_own) override {
    ends[static_cast<std::size_t>(sequence)] = by_its_own ? 1 : 0;
  }
  std::vector<std::vector<Token>> tokens;
  std::vector<int> ends;  // -1: none yet
};

constexpr std::int64_t kVocab = 37;

/// The network of `run` with slightly trained weights, so that its texts differ.
struct Trained {
  Trained(tests::TinyRun run, distributed::Communicator& comm) : training(run, comm, ledger), comm(comm) {
    training.result_of_steps(1, 2);
  }
  Heard cached(const train::GenerationOrder& order, std::int64_t sequences, std::int64_t longest) {
    train::CachedGenerator generator(training.engine(), kVocab, sequences, longest, ledger);
    Heard heard(order.num_sequences());
    times = generator.run(order, heard);
    return heard;
  }
  std::vector<Token> plain(const std::vector<Token>& prompt, std::int64_t count, const Sampling& sampling) {
    return train::Generator(training.engine(), kVocab, ledger).continued(prompt, count, sampling);
  }

  MemoryLedger ledger;
  tests::TinyTraining training;
  distributed::Communicator& comm;
  train::GenerationTimes times;
};

const std::vector<std::vector<Token>> kPrompts = {{3, 30, 7}, {11}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {36, 0}};

model::Config with_window(model::Config config, std::int64_t seq) {
  config.seq = seq;
  return config;
}

}  // namespace

TEST_CASE("greedy text with a cache is that of the full forward, for each model, stage and rank count") {
  for (const auto& config : {tests::tiny_gpt2(), tests::tiny_llama(), tests::tiny_qwen2(), tests::tiny_qwen3()}) {
    tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
      for (const int stage : {0, 1, 2, 3}) {
        Trained trained({.model = with_window(config, 40), .stage = stage}, comm);
        const train::GenerationOrder order{.prompts = kPrompts, .count = 20, .sampling = {.temperature = 0.0}};
        const Heard heard = trained.cached(order, 3, 29);
        for (std::size_t p = 0; p < kPrompts.size(); ++p) {
          CHECK(heard.tokens[p] == trained.plain(kPrompts[p], 20, order.sampling));
          CHECK(heard.ends[p] == 0);
        }
      }
    });
  }
}

TEST_CASE("a prompt in many calls, through more units than collectives may be under way, gives the same text") {
  model::Config many_blocks = tests::in_blocks(with_window(tests::tiny_gpt2(), 700), 8);
  many_blocks.vocab = 257;
  model::Config many_layers = with_window(tests::tiny_gpt2(), 700);
  many_layers.layers = 24;
  std::vector<Token> prompt;
  for (Token t = 0; t < 600; ++t) prompt.push_back(t * 7 % kVocab);
  for (const auto& config : {many_blocks, many_layers}) {
    for (const int num_ranks : {1, 2}) {
      tests::on_first_ranks(
          num_ranks, num_ranks == 1 ? "self" : "shm",
          [&](distributed::Communicator& comm) {
            Trained trained({.model = config, .stage = 3}, comm);
            const train::GenerationOrder order{.prompts = {prompt, {3}}, .count = 2, .sampling = {.temperature = 0.0}};
            const Heard heard = trained.cached(order, 2, 610);
            for (std::size_t p = 0; p < 2; ++p) {
              CHECK(heard.tokens[p] == trained.plain(order.prompts[p], 2, order.sampling));
            }
          },
          {.under_way = zero::collectives_under_way(1)});
    }
  }
}

TEST_CASE("logits of 16-bit weights with a cache are those of the full forward, to a few roundings") {
  const std::vector<Token> text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 36, 0, 17};
  const auto count = static_cast<std::int64_t>(text.size());
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const auto& config : {tests::tiny_gpt2(), tests::tiny_llama(), tests::tiny_qwen3()}) {
      tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
        Trained trained({.model = with_window(config, 12), .precision = precision}, comm);
        train::Engine& engine = trained.training.engine();
        engine.reserve_cache(trained.ledger, {.sequences = 1, .positions = count, .rows = count});
        const Kokkos::View<std::int32_t**, Kokkos::LayoutRight, DeviceMemory> rows("rows", 3, text.size());
        const auto host = Kokkos::create_mirror_view(rows);  // tokens, sequences, positions
        for (std::size_t i = 0; i < text.size(); ++i) {
          host(0, i) = text[i];
          host(1, i) = 0;
          host(2, i) = static_cast<std::int32_t>(i);
        }
        Kokkos::deep_copy(rows, host);
        const auto row = [&](std::int64_t r, std::int64_t first, std::int64_t extent) {
          return Vector<const std::int32_t>(rows.data() + r * count + first, static_cast<std::size_t>(extent));
        };
        const auto cached = trained.ledger.take<float>(Memory::workspace, "logits", 1, kVocab);
        const auto full = trained.ledger.take<float>(Memory::workspace, "logits", kVocab);
        engine.decode({row(0, 0, 11), {row(1, 0, 11), row(2, 0, 11)}}, Matrix<float>());
        engine.decode({row(0, 11, 1), {row(1, 11, 1), row(2, 11, 1)}}, cached);
        engine.next_token_logits(as_matrix(row(0, 0, count), 1, count), count, full);
        const auto got = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), cached);
        const auto expected = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), full);
        float largest = 0.0F;
        float difference = 0.0F;
        for (std::int64_t v = 0; v < kVocab; ++v) {
          largest = std::max(largest, std::abs(expected(v)));
          difference = std::max(difference, std::abs(got(0, v) - expected(v)));
        }
        CHECK(difference <= (precision == Precision::bf16 ? 0x1p-6F : 0x1p-9F) * largest);
        CHECK(largest > 0.0F);
      });
    }
  }
}

TEST_CASE("beyond the window the model sees the last T tokens, as without a cache") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    for (const auto& config : {tests::tiny_gpt2(), tests::tiny_llama()}) {
      Trained trained({.model = config}, comm);  // T = 7
      const train::GenerationOrder order{.prompts = kPrompts, .count = 12, .sampling = {.seed = 4}};
      const Heard heard = trained.cached(order, 2, 21);
      CHECK(heard.tokens[0] == trained.plain(kPrompts[0], 12, order.sampling));
      const train::GenerationOrder long_one{.prompts = {kPrompts[2]}, .count = 5, .sampling = {.temperature = 0.0}};
      CHECK(trained.cached(long_one, 1, 14).tokens[0] == trained.plain(kPrompts[2], 5, long_one.sampling));
    }
  });
}

TEST_CASE("a text depends on its prompt, sample and seed, not on the batch; samples differ") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    Trained trained({.model = with_window(tests::tiny_llama(), 40)}, comm);
    const train::GenerationOrder order{
        .prompts = kPrompts, .samples = 3, .count = 15, .sampling = {.top_k = 30, .seed = 9}};
    const Heard together = trained.cached(order, 12, 24);
    CHECK(trained.times.prompt_tokens == 3 * (3 + 1 + 9 + 2));
    CHECK(trained.times.step_tokens == 12 * 14);
    CHECK(trained.cached(order, 1, 24).tokens == together.tokens);
    CHECK(trained.cached(order, 5, 24).tokens == together.tokens);
    CHECK(together.tokens[0] == trained.plain(kPrompts[0], 15, order.sampling));
    CHECK(together.tokens[0] != together.tokens[1]);
    CHECK(together.tokens[1] != together.tokens[2]);
  });
}

TEST_CASE("a token that ends a text is not part of it, and its slot goes to the next prompt") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    Trained trained({.model = with_window(tests::tiny_gpt2(), 40)}, comm);
    train::GenerationOrder order{.prompts = kPrompts, .count = 20, .sampling = {.seed = 3}};
    const Heard whole = trained.cached(order, 4, 29);
    order.ends = [](Token token) { return token % 5 == 0; };
    const Heard ended = trained.cached(order, 2, 29);
    for (std::size_t p = 0; p < kPrompts.size(); ++p) {
      const auto& all = whole.tokens[p];
      const auto end = std::find_if(all.begin(), all.end(), order.ends);
      CHECK(ended.tokens[p] == std::vector<Token>(all.begin(), end));
      CHECK(ended.ends[p] == (end == all.end() ? 0 : 1));
    }
    order.count = 0;
    CHECK(trained.cached(order, 2, 29).ends == std::vector<int>(4, 0));
  });
}

TEST_CASE("sample s of prompt p is the same however many samples are asked for, and as the first of several calls") {
  tests::on_each_group("mpi", [&](distributed::Communicator& comm) {
    Trained trained({.model = with_window(tests::tiny_llama(), 40), .stage = 3}, comm);
    train::GenerationOrder order{.prompts = kPrompts, .samples = 3, .count = 8, .sampling = {.seed = 9}};
    const Heard three = trained.cached(order, 4, 17);
    order.samples = 5;
    const Heard five = trained.cached(order, 4, 17);
    for (std::size_t p = 0; p < kPrompts.size(); ++p) {
      for (std::size_t sample = 0; sample < 3; ++sample) {
        CHECK(three.tokens[3 * p + sample] == five.tokens[5 * p + sample]);
      }
    }
    const train::GenerationOrder alone{
        .prompts = {kPrompts[2]}, .count = 8, .sampling = order.sampling, .first_prompt = 2};
    CHECK(trained.cached(alone, 1, 17).tokens[0] == three.tokens[6]);
  });
}

TEST_CASE("the repetition penalty counts the whole sequence, also beyond the window, as without a cache") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    Trained trained({.model = tests::tiny_gpt2()}, comm);  // T = 7
    const Sampling sampling{.temperature = 0.0, .repetition_penalty = 1e6};
    const train::GenerationOrder order{.prompts = kPrompts, .count = 20, .sampling = sampling};
    const Heard heard = trained.cached(order, 2, 29);
    train::GenerationOrder without = order;
    without.sampling.repetition_penalty = 1.0;
    const Heard repeating = trained.cached(without, 2, 29);
    const auto distinct = [](const std::vector<Token>& tokens) {
      return std::set<Token>(tokens.begin(), tokens.end()).size();
    };
    for (std::size_t p = 0; p < kPrompts.size(); ++p) {
      CHECK(heard.tokens[p] == trained.plain(kPrompts[p], 20, sampling));
      CHECK(distinct(heard.tokens[p]) > distinct(repeating.tokens[p]));
    }
  });
}

TEST_CASE("the next turn of a conversation runs only the tokens behind what is cached, and gives the same text") {
  tests::on_first_ranks(1, "mpi", [&](distributed::Communicator& comm) {
    for (const auto& config : {tests::tiny_gpt2(), tests::tiny_qwen3()}) {
      Trained trained({.model = with_window(config, 40)}, comm);
      train::CachedGenerator generator(trained.training.engine(), kVocab, 1, 40, trained.ledger);
      std::vector<Token> talk = {3, 30, 7};
      std::int64_t cached = 0;
      for (int turn = 0; turn < 4; ++turn) {
        if (turn == 3) talk[4] = 36;  // the history changed: only what is before it is reused
        const train::GenerationOrder order{
            .prompts = {talk}, .count = 4, .sampling = {.temperature = 0.0}, .reuses_cache = true};
        Heard heard(1);
        const auto times = generator.run(order, heard);
        CHECK(heard.tokens[0] == trained.plain(talk, 4, order.sampling));
        CHECK(times.prompt_tokens == std::ssize(talk) - (turn == 3 ? 4 : cached));
        cached = std::ssize(talk) + 3;  // the last new token was not run
        talk.insert(talk.end(), heard.tokens[0].begin(), heard.tokens[0].end());
        talk.push_back(11);
      }
    }
  });
}
