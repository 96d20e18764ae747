// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_memory_plan.cpp: plans against the published formula, also of models far too large for this machine.
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cctype>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>

#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>

using namespace kozero;

namespace {

io::Deck deck_with(const std::vector<std::string>& overrides) {
  return io::parse_deck("run.steps = 10\ndata.synthetic = true\ntrain.global_batch = 8\ncheckpoint.every = 0\n",
                        "test.toml", overrides);
}

std::vector<plan::MemoryPlan> plans(const std::vector<std::string>& overrides, int num_ranks) {
  const io::Deck deck = deck_with(overrides);
  return plan::plans_of_all_stages(deck, deck.comm.backend, num_ranks, deck.model.vocab);
}

using Changes = std::vector<plan::Change>;

double states_of(const plan::MemoryPlan& plan) {
  return static_cast<double>(plan.of(Memory::parameters) + plan.of(Memory::gradients) + plan.of(Memory::optimizer));
}

/// zero.shard_group of "all", "node" or a number.
io::WordOrNumber group_of(const std::string& text) {
  return std::isdigit(static_cast<unsigned char>(text[0])) != 0 ? io::WordOrNumber(std::int64_t{std::stoi(text)})
                                                                : io::WordOrNumber(text);
}

/// Of 1000 parameters with AdamW, on 4 ranks.
plan::MemoryPlan plan_of_states(Precision precision, int stage) {
  plan::MemoryPlan plan;
  plan.precision = precision;
  plan.stage = stage;
  plan.num_parameters = 1000;
  plan.num_trainable = 1000;
  plan.ranks_per_group = 4;
  return plan;
}

}  // namespace

TEST_CASE("the formula: 16 P, 8 P + 8 P/n, 4 P + 12 P/n, 16 P/n") {
  const auto bytes = [](int stage) { return plan::model_state_bytes(plan_of_states(Precision::f32, stage)); };
  CHECK(bytes(0) == 16000.0);
  CHECK(bytes(1) == 10000.0);
  CHECK(bytes(2) == 7000.0);
  CHECK(bytes(3) == 4000.0);
}

TEST_CASE("the formula in bf16: 18 P, 6 P + 12 P/n, 2 P + 16 P/n, 18 P/n") {
  const auto bytes = [](int stage) { return plan::model_state_bytes(plan_of_states(Precision::bf16, stage)); };
  CHECK(bytes(0) == 18000.0);
  CHECK(bytes(1) == 9000.0);
  CHECK(bytes(2) == 6000.0);
  CHECK(bytes(3) == 4500.0);
}

TEST_CASE("planned model states are the formula's, up to pads, for a model of 13 billion parameters") {
  const auto precision = GENERATE(as<std::string>(), "f32", "bf16");
  const auto kind = GENERATE(as<std::string>(), "adamw", "sgd");
  for (const auto& plan :
       plans({"model.arch=llama", "model.preset=llama-13b", "train.precision=" + precision, "optim.kind=" + kind}, 8)) {
    CHECK(plan.num_parameters > 12'000'000'000);
    CHECK(name_of(plan.precision) == precision);
    CHECK(states_of(plan) == Catch::Approx(plan::model_state_bytes(plan)).epsilon(1e-4));
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
  CHECK(table(all[2].total()).find("per rank: 2\n") != std::string::npos);
  CHECK(table(all[0].total()).find("per rank: 0\n") != std::string::npos);
  CHECK(table(1 << 20).find("no stage fits 1.0 MiB") != std::string::npos);
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

TEST_CASE("the smallest groups of whole nodes that fit are named, and what they spare between nodes") {
  const auto deck_in = [](const std::string& group) {
    io::Deck deck =
        deck_with({"model.preset=gpt2-124m", "train.global_batch=64", "train.micro_batch=4", "zero.stage=3"});
    deck.zero.shard_group = group_of(group);
    deck.ranks_per_node = 2;
    return deck;
  };
  const auto plan_in = [&](const std::string& group, int ranks = 16) {
    train::Settings settings = train::settings_of(deck_in(group), ranks, 50257, 0);
    settings.comm.ranks_per_node = 2;
    return plan::memory_plan(settings, "mpi", ranks);
  };
  const auto total = [&](const std::string& group) { return plan_in(group).total(); };
  const auto groups_in = [&](std::int64_t bytes, const std::string& group = "all") {
    const auto fit = plan::first_fit(deck_in(group), "mpi", 16, 50257, {bytes, bytes});
    REQUIRE(fit.has_value());
    return fit->in_groups ? fit->in_groups->ranks_per_group : 0;
  };
  CHECK(total("8") > total("all"));
  CHECK(groups_in(total("2")) == 2);
  CHECK(groups_in(total("2") - 1) == 4);
  CHECK(groups_in(total("8")) == 8);
  CHECK(groups_in(total("8") - 1) == 0);
  CHECK(groups_in(total("2"), "4") == 0);
  CHECK(total("16") == total("all"));
  CHECK(total("64") == total("all"));
  CHECK(total("node") == total("2"));
  CHECK_THROWS_AS(total("3"), Error);
  CHECK(train::ranks_per_group(deck_with({"model.preset=gpt2-124m", "zero.shard_group=node", "zero.stage=1"}), 16) ==
        8);

  io::Deck least = deck_in("2");  // with the two changes below, the least memory in these groups
  least.train.recompute = "full";
  least.train.micro_batch = 1;
  const auto fit_below = [&](const std::string& group, int stage) {
    io::Deck deck = least;
    deck.zero.shard_group = group_of(group);
    deck.zero.stage = stage;
    train::Settings settings = train::settings_of(deck, 16, 50257, 0);
    settings.comm.ranks_per_node = 2;
    return plan::memory_plan(settings, "mpi", 16).total();
  };
  const std::int64_t room = std::min(fit_below("2", 2), fit_below("2", 3)) - 1;
  const auto ungrouped = plan::first_fit(least, "mpi", 16, 50257, {room, room});
  REQUIRE(ungrouped.has_value());
  CHECK(ungrouped->changes == Changes{{"zero.shard_group", "all"}});

  // V bytes of gradients, summed once and sent to one other group; W = V bytes of weights are gathered in a group.
  const auto settings = train::settings_of(deck_in("8"), 16, 50257, 0);
  const std::int64_t bytes = 4 * model::make_model<float>(settings.model)->parameters().extent();
  CHECK(plan_in("all").sent.across == 0);
  CHECK(std::abs(plan_in("8").sent.across - (bytes / 2 + bytes / 16)) < 16);
  CHECK(plan_in("8").sent.across < plan::sent_beyond(plan_in("all"), 8));
}

TEST_CASE("epochs and a warm-up can be planned without the data") {
  const io::Deck deck =
      io::parse_deck("run.epochs = 2\ndata.synthetic = true\ntrain.global_batch = 8\ncheckpoint.every = 0\n",
                     "test.toml", {"model.preset=tiny", "optim.warmup_steps=100"});
  CHECK(plan::plans_of_all_stages(deck, deck.comm.backend, 2, 64).size() == 4);
}

TEST_CASE("what to change so that a deck fits: first the stage, then what is computed again, then the micro-batch") {
  const std::vector<std::string> given = {"model.preset=gpt2-124m", "train.global_batch=64", "train.micro_batch=4"};
  const io::Deck deck = deck_with(given);
  const auto total = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), given.begin(), given.end());
    const io::Deck changed = deck_with(overrides);
    return plan::memory_plan(train::settings_of(changed, 4, 50257, 0), "shm", 4).total();
  };
  const auto fit_in = [&](std::int64_t bytes) { return plan::first_fit(deck, "shm", 4, 50257, {bytes, bytes}); };
  const std::int64_t as_it_is = total({});
  REQUIRE(fit_in(as_it_is).has_value());
  CHECK(fit_in(as_it_is)->changes.empty());
  CHECK(fit_in(as_it_is)->plan.total() == as_it_is);
  CHECK(fit_in(as_it_is)->largest_micro_batch == 4);
  const std::int64_t of_16 = total({"train.micro_batch=16"});
  CHECK(fit_in(of_16)->largest_micro_batch == 16);  // a rank's share of the batch
  CHECK(fit_in(of_16 - 1)->largest_micro_batch == 8);
  CHECK(fit_in(16 * of_16)->largest_micro_batch == 16);

  const std::int64_t least = std::min(total({"zero.stage=2"}), total({"zero.stage=3"}));
  REQUIRE(least < total({"zero.stage=1"}));
  CHECK(fit_in(as_it_is - 1)->changes == Changes{{"zero.stage", "1"}});
  const std::int64_t selective = total({"train.recompute=selective"});
  REQUIRE(selective < least);
  CHECK(fit_in(selective)->changes == Changes{{"train.recompute", "selective"}});
  const std::int64_t smallest = total({"zero.stage=2", "train.recompute=full", "train.micro_batch=1"});
  const auto last = fit_in(smallest);
  REQUIRE(last.has_value());
  CHECK(last->plan.total() <= smallest);
  CHECK(last->changes.back().key == "train.micro_batch");
  CHECK_FALSE(fit_in(1 << 20).has_value());
  CHECK(fit_in(0)->changes.empty());  // the memory is unknown
}

TEST_CASE("full recomputation saves 70 % of the activations from 1,024 tokens on") {
  const auto activations = [](const char* recompute) {
    const io::Deck deck = deck_with({"model.preset=gpt2-124m", "model.seq=1024", "train.global_batch=8",
                                     "train.micro_batch=1", std::string("train.recompute=") + recompute});
    return plan::memory_plan(train::settings_of(deck, 8, 50257, 0), "shm", 8).of(Memory::activations);
  };
  CHECK(10 * activations("full") <= 3 * activations("none"));
}

TEST_CASE("blocks of the vocabulary are advised where they decide") {
  const std::vector<std::string> given = {
      "model.preset=gpt2-124m", "model.seq=256",        "train.precision=bf16", "train.recompute=full",
      "train.micro_batch=1",    "train.global_batch=8", "zero.stage=3"};
  const auto total = [&](const std::string& block) {
    auto overrides = given;
    overrides.push_back("model.vocab_block=" + block);
    return plan::memory_plan(train::settings_of(deck_with(overrides), 8, 50257, 0), "shm", 8).total();
  };
  const auto fit_in = [&](std::int64_t bytes) {
    return plan::first_fit(deck_with(given), "shm", 8, 50257, {bytes, bytes});
  };
  CHECK(total("8192") < total("0") * 8 / 10);
  CHECK(fit_in(total("0"))->changes.empty());
  REQUIRE(fit_in(total("0") - 1).has_value());
  CHECK(fit_in(total("0") - 1)->changes == Changes{{"model.vocab_block", "8192"}});
  CHECK(fit_in(total("8192"))->changes == Changes{{"model.vocab_block", "8192"}});
  CHECK(fit_in(total("8192") - 1)->changes == Changes{{"model.vocab_block", "2048"}});
}

TEST_CASE("where nothing else fits the optimizer's state goes to a disk, then the parameters too") {
  const io::Deck deck = deck_with({"model.preset=gpt2-1558m", "train.precision=bf16", "train.global_batch=2"});
  const auto fit_in = [&](std::int64_t mebibytes) {
    return plan::first_fit(deck, "shm", 2, 50257, {mebibytes << 20, mebibytes << 20});
  };
  const auto offloads = [](const plan::Fit& fit) {
    return std::ranges::count_if(fit.changes, [](const auto& each) { return each.key.starts_with("zero.offload"); });
  };
  REQUIRE(fit_in(16000).has_value());
  CHECK(offloads(*fit_in(16000)) == 0);
  REQUIRE(fit_in(7000).has_value());
  CHECK(offloads(*fit_in(7000)) == 1);
  CHECK(fit_in(7000)->plan.of(Memory::disk) > std::int64_t{8} << 30);
  REQUIRE(fit_in(5000).has_value());
  CHECK(offloads(*fit_in(5000)) == 2);
  CHECK(fit_in(5000)->plan.of(Memory::parameters) == 0);
  CHECK_FALSE(fit_in(3000).has_value());
}

TEST_CASE("for GPUs state goes to the host's memory, which staging counts and the GPU's room does not") {
  io::Deck deck =
      deck_with({"model.preset=gpt2-1558m", "train.precision=bf16", "train.global_batch=2", "zero.stage=3"});
  deck.plans_for_gpus = true;
  const auto fit_in = [&](std::int64_t mebibytes) {
    return plan::first_fit(deck, "nccl", 2, 50257, {mebibytes << 20, 0});
  };
  REQUIRE(fit_in(20000).has_value());
  CHECK(fit_in(20000)->plan.of(Memory::staging) < 1 << 20);
  for (const auto& [mebibytes, count] : {std::pair{7000, 1}, std::pair{5000, 2}}) {
    const auto fit = fit_in(mebibytes);
    REQUIRE(fit.has_value());
    CHECK(std::ranges::count_if(fit->changes, [](const auto& each) {
            return each.key.starts_with("zero.offload_") && each.value == "host";
          }) == count);
    CHECK(fit->plan.of(Memory::disk) == 0);
    CHECK(fit->plan.of(Memory::optimizer) == 0);
    CHECK(fit->plan.needed().host == fit->plan.of(Memory::staging));
    // Master and moments of half of the parameters, and weights of 2 bytes.
    const std::int64_t state = fit->plan.num_parameters / 2 * (count == 1 ? 12 : 14);
    CHECK(fit->plan.of(Memory::staging) > state);
    CHECK(fit->plan.of(Memory::staging) < state + (std::int64_t{80} << 20));
  }
  deck.zero.offload_optimizer = "disk";
  CHECK_THROWS_AS(train::settings_of(deck, 2, 50257, 0), Error);
}

TEST_CASE("each way to compute again has its categories, where they differ") {
  const io::Deck deck = deck_with({"model.preset=gpt2-124m", "train.recompute=4"});
  const auto plans = plan::plans_of_all_stages(deck, "shm", 2, 50257);
  const auto levels = plan::plans_recomputed(deck, "shm", 2, 50257);
  REQUIRE(levels.size() == 3);
  CHECK(levels[2].recompute == "full");
  const std::string table = plan::table_of(levels, plans);
  CHECK(table.find("activations, full ") != std::string::npos);
  CHECK(table.find("gathered, full ") != std::string::npos);  // 4 blocks are held at once in stage 3
  CHECK(table.find("optimizer") == std::string::npos);
  CHECK(plan::table_of({}, plans).empty());
}

TEST_CASE("advice keeps the batch of a deck with train.accumulate, and names the order of accumulation it needs") {
  const io::Deck deck =
      io::parse_deck("run.steps = 10\ndata.synthetic = true\ntrain.accumulate = 2\ncheckpoint.every = 0\n", "test.toml",
                     {"model.preset=gpt2-124m", "train.micro_batch=8", "zero.accumulation=local"});
  const std::int64_t in_stage_0 = plan::plans_of_all_stages(deck, "shm", 8, 50257)[0].total();
  bool smaller = false;
  bool ordered = false;
  for (std::int64_t room = in_stage_0;; room -= std::int64_t{32} << 20) {
    const auto fit = plan::first_fit(deck, "shm", 8, 50257, {room, room});
    if (!fit) break;
    CHECK(fit->deck.train.micro_batch * fit->deck.train.accumulate == 16);
    const auto has = [&](const plan::Change& change) { return std::ranges::count(fit->changes, change) == 1; };
    CHECK((fit->plan.stage >= 2) == has({"zero.accumulation", "ordered"}));
    CHECK_NOTHROW(train::settings_of(fit->deck, 8, 50257, 0));
    smaller = smaller || has({"train.accumulate", "4"});
    ordered = ordered || has({"zero.accumulation", "ordered"});
  }
  CHECK(smaller);
  CHECK(ordered);
}

TEST_CASE("a GPU has a reserve, larger with NCCL and with its three communicators; a host has none") {
  plan::MemoryPlan plan;
  CHECK(plan::estimated_reserve(plan) == 0);
  plan.on_gpus = true;
  const std::int64_t alone = plan::estimated_reserve(plan);
  CHECK(alone >= std::int64_t{1} << 30);
  plan.num_ranks = plan.ranks_per_group = 16;
  const std::int64_t of_nccl = plan::estimated_reserve(plan) - alone;
  CHECK(of_nccl > 0);
  plan.ranks_per_group = 8;
  CHECK(plan::estimated_reserve(plan) == alone + 3 * of_nccl);
}

TEST_CASE("every GPU has a memory and rates, which a user's own replace") {
  const auto settings = train::settings_of(deck_with({"model.preset=gpt2-124m", "train.precision=bf16"}), 4, 50257, 0);
  for (const std::string& gpu : plan::published_gpus()) {
    INFO(gpu);
    CHECK(plan::published_memory(gpu) >= std::int64_t{24'000'000'000});
    const plan::Rates rates = plan::published_rates(gpu, settings, 4);
    CHECK(rates.products > 50e12);
    CHECK(rates.memory > 0.5e12);
    CHECK(rates.link > 20e9);
    const plan::Rates own = plan::with_given_rates(rates, {.products = 1e12, .memory = 2e9, .link = 3e9});
    CHECK(own.products == 1e12);
    CHECK(own.memory == 2e9);
    CHECK(own.link == 3e9);
    CHECK(own.link_in_group == 3e9);
    CHECK(own.bus == rates.bus);
  }
}

TEST_CASE("the changes between two decks are overrides of every key that differs, those that plan tries last") {
  const io::Deck deck = deck_with({"model.preset=gpt2-124m"});
  io::Deck other = deck;
  CHECK(plan::changes_between(deck, other).empty());
  other.zero.stage = 3;
  other.train.recompute = "full";
  other.optim.lr = 0.5;
  other.run.deterministic = false;
  CHECK(plan::changes_between(deck, other) ==
        Changes{{"run.deterministic", "false"}, {"optim.lr", "0.5"}, {"zero.stage", "3"}, {"train.recompute", "full"}});
}

TEST_CASE("ranks of a node share the rate of their disk") {
  auto settings = train::settings_of(deck_with({"model.preset=gpt2-124m"}), 4, 50257, 0);
  const plan::Speed speed{.products = 1e9, .memory = 1e9};
  settings.comm.ranks_per_node = 0;
  CHECK(plan::rates_at(speed, settings, 1, 1).disk == 4.0 * plan::rates_at(speed, settings, 4, 1).disk);
  settings.comm.ranks_per_node = 2;
  CHECK(plan::rates_at(speed, settings, 1, 1).disk == 2.0 * plan::rates_at(speed, settings, 4, 1).disk);
}

TEST_CASE("one change at a time: each alternative is planned in the deck's stage") {
  const io::Deck deck = deck_with({"model.preset=gpt2-1558m", "zero.stage=3", "train.precision=bf16"});
  const auto all = plan::alternatives(deck, "shm", 16, 50257);
  std::vector<std::string> overrides;
  for (const auto& one : all) {
    const auto changes = plan::changes_between(deck, one.deck);
    REQUIRE(changes.size() <= 1);
    const std::string override = changes.empty() ? "" : changes[0].text();
    overrides.push_back(override);
    CHECK(one.plan.stage == 3);
    // The pages for weights on a disk may need more memory than the weights did.
    const bool saves = override.starts_with("train.") || override.starts_with("model.");
    INFO(override);
    if (saves) CHECK(one.plan.total() < all[0].plan.total());
    if (override.ends_with("=disk")) CHECK(one.plan.of(Memory::disk) > 0);
  }
  CHECK(overrides == std::vector<std::string>{"", "train.recompute=selective", "train.recompute=full",
                                              "model.vocab_block=8192", "model.vocab_block=2048",
                                              "zero.offload_optimizer=disk", "zero.offload_parameters=disk",
                                              "zero.shard_group=8"});
}

// docs/memory.md must contain its lines, so a change of memory requires a change of the document.
TEST_CASE("the table of models and ranks in the documents is what is planned, and near the formula") {
  struct Row {
    std::string name;
    std::vector<std::string> model;
  };
  const std::vector<Row> rows = {
      {"GPT-2 124M", {"model.preset=gpt2-124m"}},
      {"GPT-2 1.5B", {"model.preset=gpt2-1558m"}},
      {"6B", {"model.layers=28", "model.dim=4096", "model.heads=16", "model.vocab=50257"}},
      {"Llama 8B", {"model.arch=llama", "model.preset=llama-8b"}},
      {"Llama 13B", {"model.arch=llama", "model.preset=llama-13b"}},
      {"20B", {"model.layers=44", "model.dim=6144", "model.heads=64", "model.vocab=50257"}},
  };
  std::ifstream file(KOZERO_DOCS "/memory.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  for (const Row& row : rows) {
    for (const int ranks : {1, 4, 8, 64}) {
      std::vector<std::string> overrides = {"train.precision=bf16", "train.recompute=full", "model.seq=1024",
                                            "train.micro_batch=1", "train.global_batch=" + std::to_string(ranks)};
      overrides.insert(overrides.end(), row.model.begin(), row.model.end());
      const io::Deck deck = deck_with(overrides);
      std::string line = "| " + row.name + " | " + std::to_string(ranks) + " |";
      for (const auto& plan : plan::plans_of_all_stages(deck, ranks == 1 ? "self" : "mpi", ranks, 0)) {
        const double formula = plan::model_state_bytes(plan);
        CHECK(states_of(plan) == Catch::Approx(formula).epsilon(0.002));
        std::ostringstream cell;
        cell << std::fixed << std::setprecision(1) << " " << formula / kGiB << " / "
             << static_cast<double>(plan.total()) / kGiB << " |";
        line += cell.str();
      }
      if (document.find(line + "\n") == std::string::npos) std::cout << line << "\n";  // to paste into the document
      CHECK(document.find(line + "\n") != std::string::npos);
    }
  }
}

TEST_CASE("70 billion parameters are planned at once for many ranks") {
  io::Deck deck = deck_with({"model.arch=llama", "model.layers=80", "model.dim=8192", "model.heads=64",
                             "model.kv_heads=8", "model.ffn=28672", "model.vocab=32000", "model.seq=4096",
                             "train.precision=bf16", "train.micro_batch=1"});
  deck.plans_for_gpus = true;
  const std::int64_t room = std::int64_t{80} << 30;
  const auto on_8 = plan::first_fit(deck, "nccl", 8, 32000, {room, 0});
  REQUIRE(on_8.has_value());
  CHECK(on_8->changes.back().value == "host");
  const auto fit = plan::first_fit(deck, "nccl", 64, 32000, {room, 0});
  REQUIRE(fit.has_value());
  CHECK(fit->plan.stage >= 2);
  CHECK(fit->plan.of(Memory::staging) < 1 << 20);
  CHECK(fit->plan.total() <= room);
}
