// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_settings.cpp: the settings that follow from a deck and a number of ranks.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/schema.hpp"

using namespace kozero;

namespace {

io::Deck deck_with(const std::vector<std::string>& overrides) {
  return io::parse_deck(
      "run.steps = 10\nmodel.layers = 1\nmodel.dim = 8\nmodel.heads = 2\nmodel.seq = 4\n"
      "data.synthetic = true\nmodel.vocab = 16\ntrain.global_batch = 12\ntrain.micro_batch = 3\n",
      "test.toml", overrides);
}

}  // namespace

TEST_CASE("the global batch is fixed, micro-steps follow from ranks") {
  const auto deck = deck_with({});
  for (const auto& [ranks, micro_steps, micro_batch] :
       std::vector<std::array<std::int64_t, 3>>{{1, 4, 3}, {2, 2, 3}, {3, 2, 3}, {4, 1, 3}, {5, 1, 3}, {13, 1, 3}}) {
    const auto batch = train::batch_sizes(deck, static_cast<int>(ranks));
    CHECK(batch.global_batch == 12);
    CHECK(batch.micro_steps == micro_steps);
    CHECK(batch.micro_batch == micro_batch);
  }
}

TEST_CASE("batch scaling grows batch and rate from base_ranks") {
  const auto linear = train::batch_sizes(deck_with({"train.batch_scaling=linear", "train.base_ranks=2"}), 6);
  CHECK(linear.global_batch == 36);
  CHECK(linear.rate_factor == Catch::Approx(3.0));
  const auto root = train::batch_sizes(deck_with({"train.batch_scaling=sqrt"}), 4);
  CHECK(root.global_batch == 48);
  CHECK(root.rate_factor == Catch::Approx(2.0));
}

TEST_CASE("the loss is scaled in fp16 alone: by a moving factor, or by the deck's") {
  const auto scaler = [](const std::vector<std::string>& overrides) {
    return train::settings_of(deck_with(overrides), 1, 16, 25).step.loss_scaler;
  };
  CHECK(scaler({}).scale() == 1.0);
  CHECK(scaler({"train.precision=bf16"}).scale() == 1.0);
  CHECK_FALSE(scaler({"train.precision=bf16"}).state());
  CHECK(train::settings_of(deck_with({"train.precision=fp16"}), 1, 16, 25).precision == Precision::fp16);
  auto moving = scaler({"train.precision=fp16", "train.loss_scale_window=1"});
  CHECK(moving.scale() == 65536.0);
  moving.count_good_step();
  CHECK(moving.scale() == 131072.0);
  const auto fixed = scaler({"train.precision=fp16", "train.loss_scale=64"});
  CHECK(fixed.scale() == 64.0);
  CHECK_FALSE(fixed.state());
}

TEST_CASE("epochs become steps, the last of an epoch may be incomplete") {
  auto deck = deck_with({});
  deck.run.steps = 0;
  deck.run.epochs = 2;
  CHECK(train::settings_of(deck, 1, 16, 25).steps == 6);
}

TEST_CASE("a lesson of a curriculum has its own steps, schedule, batch and order of samples") {
  const auto whole = deck_with({"train.seq=3", "optim.warmup_steps=1",
                                "curriculum=[{steps=5}, {tokens=100, seq=4, global_batch=6, lr=1e-3}, {steps=2}]"});
  const auto lesson = [&](std::size_t number, int ranks) {
    return train::settings_of(io::deck_of_lesson(whole, number), ranks, 16, 25);
  };
  for (const int ranks : {1, 3}) {
    const auto second = lesson(1, ranks);
    CHECK(second.step.steps_before == 5);
    CHECK(second.steps == 5 + 5);  // 100 tokens in steps of 6 x 4
    CHECK(second.step.seq == 4);
    CHECK(second.batch.global_batch == 6);
    CHECK(second.step.schedule.total_steps == 5);
    CHECK(second.step.schedule.lr == 1e-3);
    const auto third = lesson(2, ranks);
    CHECK(third.step.steps_before == 10);
    CHECK(third.steps == 12);
    CHECK(third.step.seq == 3);
    CHECK(third.batch.global_batch == 12);
    CHECK(third.step.schedule.lr == whole.optim.lr);
    CHECK(lesson(0, ranks).order_seed == second.seed);
    CHECK(second.order_seed != second.seed);
    CHECK(third.order_seed != second.order_seed);
    for (const auto& [step, number] :
         std::vector<std::pair<std::int64_t, std::size_t>>{{0, 0}, {4, 0}, {5, 1}, {9, 1}, {10, 2}, {12, 2}, {20, 2}}) {
      CHECK(train::lesson_after(whole, ranks, step) == number);
    }
  }
}

TEST_CASE("a vocabulary smaller than the data's is refused") {
  CHECK_THROWS_AS(train::model_config(deck_with({}), 17), Error);
  CHECK(train::model_config(deck_with({"model.vocab=64"}), 17).vocab == 64);
}

TEST_CASE("zero.bucket_mib: as many blocks in a unit as fit, of equal numbers, in step with what is computed again") {
  // A block has 12 * 512^2 + 13 * 512 elements: 12.03 MiB.
  const auto blocks = [](const std::string& mib, const std::string& recompute, const std::string& layers = "12") {
    const auto deck = deck_with(
        {"model.dim=512", "model.layers=" + layers, "zero.bucket_mib=" + mib, "train.recompute=" + recompute});
    return train::model_config(deck, 16).blocks_in_unit;
  };
  CHECK(blocks("0", "none") == 1);
  CHECK(blocks("12", "none") == 1);
  CHECK(blocks("24", "none") == 1);
  CHECK(blocks("24.2", "none") == 2);
  CHECK(blocks("61", "none") == 4);  // 5 fit; with 4 or 5 blocks per unit there are 3 units
  CHECK(blocks("1000", "none") == 12);
  CHECK(blocks("61", "full") == 4);
  CHECK(blocks("61", "3") == 3);
  CHECK(blocks("25", "6") == 2);
  CHECK(blocks("61", "6") == 3);
  CHECK(blocks("61", "5") == 5);
  CHECK(blocks("61", "12") == 4);
  CHECK(blocks("90", "full", "7") == 7);
  const auto grouped = deck_with({"model.layers=6", "train.recompute=4", "zero.bucket_mib=0"});
  auto in_groups = train::settings_of(grouped, 1, 16, 25);
  CHECK(train::units_held(in_groups) == 4);
  in_groups.model.blocks_in_unit = 2;
  CHECK(train::units_held(in_groups) == 2);
  in_groups.model.blocks_in_unit = 6;
  CHECK(train::units_held(in_groups) == 1);
}

TEST_CASE("a warm-up or decay beyond the last step is clamped, and a note says so") {
  auto deck = deck_with({});
  deck.run.steps = 0;
  deck.run.epochs = 1;
  deck.optim.warmup_steps = 2;
  deck.optim.decay_steps = 1;
  const auto schedule = [&] { return train::settings_of(deck, 1, 16, 25).step.schedule; };
  CHECK(schedule().total_steps == 3);
  CHECK(schedule().warmup_steps == 2);
  CHECK(schedule().decay_steps == 1);
  CHECK(train::schedule_note(deck, 3).empty());
  deck.optim.decay_steps = 2;
  CHECK(schedule().decay_steps == 1);
  CHECK(train::schedule_note(deck, 3) == "optim.decay_steps = 2 (1 used): more than the run's 3 steps allow");
  deck.optim.warmup_steps = 100;
  CHECK(schedule().warmup_steps == 3);
  CHECK(schedule().decay_steps == 0);
  CHECK(train::schedule_note(deck, 3) ==
        "optim.warmup_steps = 100 (3 used), optim.decay_steps = 2 (0 used): more than the run's 3 steps allow");
  deck.optim.warmup_steps = io::kNotGiven;
  deck.optim.decay_steps = 0;
  CHECK(schedule().warmup_steps == 0);
  CHECK(train::schedule_note(deck, 3).empty());
  CHECK(train::settings_of(deck, 1, 16, 25 * 12).step.schedule.warmup_steps == 1);
  deck.run.epochs = 1000000;
  CHECK(schedule().warmup_steps == 1000);
  deck.run.epochs = 1;
  CHECK(train::settings_of(deck, 1, 16, 0).steps == 1);  // planning: the number of samples is unknown
}

TEST_CASE("a refusal of a value that the deck does not give says where the value comes from") {
  const auto refusal = [](const std::string& overrides_of_dim, std::int64_t vocab) {
    const auto deck = io::parse_deck("run.steps = 1\ndata.synthetic = true\ntrain.global_batch = 1\n", "test.toml",
                                     {"model.preset=gpt2-124m", overrides_of_dim});
    try {
      train::model_config(deck, vocab);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(
      refusal("model.dim=700", 1) ==
      "model.heads = 12: accepted: a divisor of model.dim = 700; the deck does not give model.heads: its value is that "
      "of model.preset = \"gpt2-124m\"");
  CHECK(refusal("model.heads=7", 1) == "model.heads = 7: accepted: a divisor of model.dim = 768");
  CHECK(refusal("model.seq=8", 60000) ==
        "model.preset = \"gpt2-124m\" has vocabulary 50257: the data's tokenizer has 60000 tokens; give model.vocab");
}

TEST_CASE("every preset of the models is a preset of the deck, and keys given beside it win") {
  for (const auto& name : preset_names()) {
    const auto deck = io::parse_deck(
        "run.steps = 1\ndata.synthetic = true\ntrain.global_batch = 1\nmodel.seq = 8\nmodel.layers = 3\n"
        "model.vocab = 9\n",
        "test.toml", {"model.preset=" + name, "model.vocab=16"});
    const auto config = train::model_config(deck, 1);
    CHECK(config.seq == 8);
    CHECK(config.vocab == 16);
    CHECK(config.layers == model::with_preset({}, name).layers);
  }
}

TEST_CASE("RoPE's scaling and Qwen's parts reach the model; a preset's scaling gives way to the deck's") {
  const std::string scaling = "model.rope_scaling={type=\"llama3\", factor=8, low_freq_factor=0.5, original_seq=64}";
  const auto llama = train::model_config(deck_with({"model.arch=llama", scaling, "model.qk_norm=true"}), 1);
  CHECK(llama.rope_scaling == model::RopeScaling{8.0F, 0.5F, 4.0F, 64});
  CHECK(llama.qk_norm);
  CHECK_FALSE(llama.qkv_bias);
  CHECK(train::model_config(deck_with({"model.arch=qwen2"}), 1).qkv_bias);
  const auto factor_beside = [](const std::vector<std::string>& overrides) {
    auto all = overrides;
    all.insert(all.end(), {"model.preset=llama-1b", "model.heads=32", "model.dim=2048"});
    return train::model_config(deck_with(all), 1).rope_scaling.factor;
  };
  CHECK(factor_beside({}) == 32.0F);
  CHECK(factor_beside({scaling}) == 8.0F);
  CHECK(factor_beside({"model.rope_scaling=none"}) == 1.0F);
}

TEST_CASE("a key that changes bits is named on resume, whichever it is, with both values") {
  const auto record = [](const std::vector<std::string>& overrides) {
    return io::CheckpointRecord{
        .step = 120,
        .global_batch = 4,
        .deck = io::resolved_text(
            io::parse_deck("run.steps = 120\nmodel.preset = \"tiny\"\ndata.synthetic = true\ntrain.global_batch = 4\n"
                           "optim.schedule = \"cosine\"\noptim.lr = 2e-3\ntrain.precision = \"fp16\"\n",
                           "test.toml", overrides))};
  };
  const auto changes = [&](const std::vector<std::string>& overrides) {
    return train::changes_since(record({}), record(overrides));
  };
  for (const auto& row : io::deck_schema()) {
    const std::map<std::string, std::string> other = {{"run.seed", "2"},
                                                      {"run.curriculum", "[{steps=130}]"},
                                                      {"train.seq", "16"},
                                                      {"optim.betas", "[0.5, 0.5]"},
                                                      {"optim.kind", "sgd"},
                                                      {"optim.schedule", "linear"},
                                                      {"train.on_nonfinite", "skip"},
                                                      {"train.loss_scale", "8"},
                                                      {"optim.min_lr", "0.001"},
                                                      {"model.base_dtype", "nf4"},
                                                      {"optim.freeze", "wte.*"}};
    // Synthetic data have no documents and no files: test_corpus_cli resumes with other values.
    if (row.key == "optim.momentum" || row.key == "data.mask_documents" || row.key == "data.pack") continue;
    if (row.key == "data.grow") continue;
    if (row.effect != io::Effect::bits) continue;
    const auto given = other.find(row.key);
    const std::string value = given != other.end()                                          ? given->second
                              : row.key.ends_with("_steps") || row.key.ends_with("_window") ? "3"
                                                                                            : "0.25";
    INFO(row.key);
    const bool is_of_adapters = row.key == "model.base_dtype" || row.key.starts_with("model.lora.");
    std::vector<std::string> overrides = {is_of_adapters ? "model.lora.rank=2" : "run.dir=any"};
    const auto before = record(overrides);
    overrides.push_back(row.key + "=" + value);
    const auto texts = train::changes_since(before, record(overrides));
    REQUIRE(!texts.empty());
    CHECK(std::ranges::any_of(texts, [&](const std::string& text) {
      return text.starts_with(row.key + " is ") && text.ends_with(" at step 120");
    }));
  }
  CHECK(changes({"optim.lr=5e-4"}) == std::vector<std::string>{"optim.lr is 5e-4 and was 0.002 at step 120"});
  CHECK(changes({"checkpoint.every=5", "log.every=1", "run.dir=elsewhere", "train.recompute=full"}).empty());
  // An extended run changes the end of a cosine. A constant rate does not depend on the run's length.
  const auto longer = changes({"run.steps=130"});
  REQUIRE(longer.size() == 1);
  CHECK(longer[0].starts_with("run.steps is 130 and was 120 at step 120: the learning rate rises again, from "));
  CHECK(longer[0].ends_with(" at step 121"));
  CHECK(train::changes_since(record({"optim.schedule=constant"}), record({"optim.schedule=constant", "run.steps=130"}))
            .empty());
  io::CheckpointRecord unreadable = record({});
  unreadable.deck = "nonsense = 1";
  CHECK(train::changes_since(unreadable, record({})).front().starts_with("keys are not compared"));
}

TEST_CASE("optim.freeze: names with and without the prefix, and a refusal of what matches no tensor or all") {
  const auto frozen = [](const std::vector<std::string>& overrides) {
    const auto config = train::model_config(deck_with(overrides), 16);
    std::vector<std::string> names;
    const auto table = model::make_model<float>(config)->parameters();
    for (int tensor = 0; tensor < std::ssize(table.tensors()); ++tensor) {
      if (!table.is_trainable(tensor)) names.push_back(table.tensors()[static_cast<std::size_t>(tensor)].name);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(frozen({}).empty());
  CHECK(frozen({"optim.freeze=[]"}).empty());
  CHECK(frozen({R"(optim.freeze=["transformer.wte.weight", "h.0.ln_*"])"}) ==
        Names{"wte.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.ln_2.weight", "h.0.ln_2.bias"});
  CHECK(frozen({R"(optim.freeze="transformer.h.0.*.c_fc.weight")"}) == Names{"h.0.mlp.c_fc.weight"});
  CHECK(frozen({"model.arch=llama", R"(optim.freeze=["embed_tokens.*", "model.norm.weight", "lm_head.weight"])"}) ==
        Names{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"});
  const auto refusal = [](const std::string& value) {
    try {
      train::model_config(deck_with({"optim.freeze=" + value}), 16);
      return std::string("accepted");
    } catch (const Error& problem) {
      CHECK(problem.failure() == Failure::deck);
      return std::string(problem.what());
    }
  };
  CHECK(
      refusal(R"(["wte.weight", "transfomer.wpe.weight"])") ==
      R"(command line: optim.freeze = ["wte.weight", "transfomer.wpe.weight"]: "transfomer.wpe.weight" is the name of )"
      R"(no tensor; did you mean "transformer.wpe.weight"?)");
  CHECK(refusal(R"("h.3.*")") ==
        R"(command line: optim.freeze = ["h.3.*"]: "h.3.*" is the name of no tensor; did you mean "h.0.*"?)");
  CHECK(refusal(R"("lm_head.weight")").find("is the name of no tensor") != std::string::npos);  // tied
  CHECK(refusal(R"("*")") == R"(command line: optim.freeze = ["*"]: no tensor is left to train; accepted are patterns )"
                             "that leave one");
}
