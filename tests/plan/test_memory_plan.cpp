// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_memory_plan.cpp: plans against the published formula, of models far beyond this machine too.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <kozero/plan/memory_plan.hpp>

using namespace kozero;

namespace {

io::Deck deck_with(const std::vector<std::string>& overrides) {
  return io::parse_deck("run.steps = 10\ndata.synthetic = true\ntrain.global_batch = 8\n", "test.toml", overrides);
}

std::vector<plan::MemoryPlan> plans(const std::vector<std::string>& overrides, int num_ranks) {
  const io::Deck deck = deck_with(overrides);
  return plan::plans_of_all_stages(deck, deck.comm.backend, num_ranks, deck.model.vocab);
}

double states_of(const plan::MemoryPlan& plan) {
  return static_cast<double>(plan.of(Memory::parameters) + plan.of(Memory::gradients) + plan.of(Memory::optimizer));
}

}  // namespace

TEST_CASE("the formula: 16 P, 8 P + 8 P/n, 4 P + 12 P/n, 16 P/n") {
  CHECK(plan::model_state_bytes(Precision::f32, 0, 1000, 4) == 16000.0);
  CHECK(plan::model_state_bytes(Precision::f32, 1, 1000, 4) == 10000.0);
  CHECK(plan::model_state_bytes(Precision::f32, 2, 1000, 4) == 7000.0);
  CHECK(plan::model_state_bytes(Precision::f32, 3, 1000, 4) == 4000.0);
}

TEST_CASE("the formula in bf16: 18 P, 6 P + 12 P/n, 2 P + 16 P/n, 18 P/n") {
  CHECK(plan::model_state_bytes(Precision::bf16, 0, 1000, 4) == 18000.0);
  CHECK(plan::model_state_bytes(Precision::bf16, 1, 1000, 4) == 9000.0);
  CHECK(plan::model_state_bytes(Precision::bf16, 2, 1000, 4) == 6000.0);
  CHECK(plan::model_state_bytes(Precision::bf16, 3, 1000, 4) == 4500.0);
}

TEST_CASE("planned model states are the formula's, up to pads, for a model of 13 billion parameters") {
  for (const std::string precision : {"f32", "bf16"}) {
    for (const auto& plan : plans({"model.arch=llama", "model.preset=llama-13b", "train.precision=" + precision}, 8)) {
      CHECK(plan.num_parameters > 12'000'000'000);
      CHECK(name_of(plan.precision) == precision);
      const double formula = plan::model_state_bytes(plan.precision, plan.stage, plan.num_parameters, 8);
      CHECK(states_of(plan) == Catch::Approx(formula).epsilon(1e-4));
    }
  }
}

TEST_CASE("planning takes no memory, whatever the batch") {
  const auto all = plans({"model.preset=gpt2-124m", "train.global_batch=10000000", "train.micro_batch=10000000"}, 1);
  CHECK(all.front().total() > std::int64_t{1} << 40);
}

TEST_CASE("the table names the lowest stage that fits, or that none does, where the room is known") {
  const auto all = plans({"model.preset=gpt2-124m"}, 4);
  REQUIRE(all[2].total() < all[1].total());
  const auto table = [&](std::int64_t bytes) { return plan::table_of(all, {bytes, bytes}); };
  CHECK(table(all[2].total()).find("a rank: 2\n") != std::string::npos);
  CHECK(table(all[0].total()).find("a rank: 0\n") != std::string::npos);
  CHECK(table(1 << 20).find("no stage fits 1 MiB") != std::string::npos);
  CHECK(table(0).find("stage fits") == std::string::npos);
  CHECK(table(0).find("lowest stage") == std::string::npos);
}

TEST_CASE("a GPU's memory and its host's are each to have room, where they are known") {
  const plan::DeviceAndHost need{20, 10};
  CHECK(need.fit({20, 10}));
  CHECK_FALSE(need.fit({19, 100}));
  CHECK_FALSE(need.fit({100, 9}));
  CHECK(need.fit({0, 10}));
  CHECK(need.fit({20, 0}));
}

TEST_CASE("epochs and a warm-up can be planned without the data") {
  const io::Deck deck = io::parse_deck("run.epochs = 2\ndata.synthetic = true\ntrain.global_batch = 8\n", "test.toml",
                                       {"model.preset=tiny", "optim.warmup_steps=100"});
  CHECK(plan::plans_of_all_stages(deck, deck.comm.backend, 2, 64).size() == 4);
}
