// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck_contradictions.cpp: missing features, contradictions, missing keys, files that are no decks.
#include "deck_refusals.hpp"

#include <type_traits>

#include <kozero/core/views.hpp>

TEST_CASE("what is not built is unknown") {
  check_refusals({
      {R"(train.precision = "f64")", {}, R"(x.toml:8: train.precision = "f64": accepted: f32 | bf16 | fp16)"},
      {"log.mlflow = true",
       {},
       "x.toml:8: log.mlflow = true: no such key; accepted in [log] are every, timeline, timeline_from, "
       "timeline_steps, tensorboard, sample"},
      {"",
       {"log.mlflow=true"},
       "command line: log.mlflow = true: no such key; accepted in [log] are every, timeline, timeline_from, "
       "timeline_steps, tensorboard, sample"},
  });
}

TEST_CASE("keys that contradict each other or do nothing are refused") {
  check_refusals({
      {"run.epochs = 2",
       {},
       R"(x.toml:8: run.epochs = 2: contradicts run.steps = 10 (x.toml:1); accepted is one of)"
       R"( run.steps, run.epochs, run.curriculum; remove the others)"},
      {"train.loss_scale = 1024",
       {},
       R"(x.toml:8: train.loss_scale = 1024: nothing reads it if train.precision = "f32" (default);)"
       R"( accepted only with train.precision = "fp16")"},
      {"train.precision = \"bf16\"\ntrain.loss_scale_window = 100",
       {},
       R"(x.toml:9: train.loss_scale_window = 100: nothing reads it if train.precision = "bf16";)"
       R"( accepted only with train.precision = "fp16")"},
      {"train.precision = \"fp16\"\ntrain.loss_scale_window = 100\ntrain.loss_scale = 64",
       {},
       R"(x.toml:9: train.loss_scale_window = 100: nothing reads it if train.loss_scale = 64;)"
       R"( accepted only with train.loss_scale = 0)"},
      {"train.precision = \"fp16\"\ntrain.loss_scale = 1000",
       {},
       R"(x.toml:9: train.loss_scale = 1000: other factors than powers of two round; accepted are 0, 1, 2, 4, 8,)"
       R"( ... 16777216)"},
      {"train.accumulate = 2",
       {},
       R"(x.toml:8: train.accumulate = 2: contradicts train.global_batch = 8 (x.toml:7); accepted is one of)"
       R"( train.global_batch, train.accumulate; remove the others)"},
      {R"(data.tokens = ["a.bin"])",
       {},
       R"(x.toml:8: data.tokens = ["a.bin"]: contradicts data.text = ["a.txt"] (x.toml:6);)"
       R"( accepted is one of data.text, data.source, data.tokens, data.synthetic; remove the others)"},
      {"data.synthetic = true",
       {},
       R"(x.toml:8: data.synthetic = true: contradicts data.text = ["a.txt"] (x.toml:6); accepted is one of)"
       R"( data.text, data.source, data.tokens, data.synthetic; remove the others)"},
      {"",
       {"data.tokens=a.bin", "data.synthetic=true"},
       R"(command line: data.synthetic = true: contradicts data.tokens = ["a.bin"] (command line); accepted is)"
       R"( one of data.text, data.source, data.tokens, data.synthetic; remove the others)"},
      {"", {"model.heads=5"}, R"(x.toml:3: model.dim = 64: accepted are multiples of model.heads = 5)"},
      {"model.arch = \"llama\"\nmodel.kv_heads = 3",
       {},
       R"(x.toml:9: model.kv_heads = 3: accepted are divisors of model.heads = 4)"},
      {"model.kv_heads = 2",
       {},
       R"(x.toml:8: model.kv_heads = 2: nothing reads it if model.arch = "gpt2" (default); accepted)"
       R"( only with model.arch = "llama", "qwen2", "qwen3")"},
      {"model.head_dim = 16",
       {},
       R"(x.toml:8: model.head_dim = 16: nothing reads it if model.arch = "gpt2" (default); accepted)"
       R"( only with model.arch = "llama", "qwen2", "qwen3")"},
      {"model.rope_theta = 5e5",
       {},
       R"(x.toml:8: model.rope_theta = 5e5: nothing reads it if model.arch = "gpt2" (default); accepted)"
       R"( only with model.arch = "llama", "qwen2", "qwen3")"},
      {"model.arch = \"llama\"\nmodel.dropout = 0.1",
       {},
       R"(x.toml:9: model.dropout = 0.1: nothing reads it if model.arch = "llama"; accepted only with)"
       R"( model.arch = "gpt2")"},
      {R"(model.arch = "llama")",
       {"model.dim=12"},
       R"(command line: model.dim = 12: heads of 3 channels; accepted are even ones, since RoPE turns)"
       R"( pairs)"},
      {"model.arch = \"llama\"\nmodel.head_dim = 15",
       {},
       R"(x.toml:9: model.head_dim = 15: heads of 15 channels; accepted are even ones, since RoPE turns)"
       R"( pairs)"},
      {"model.arch = \"llama\"\nmodel.preset = \"gpt2-124m\"",
       {},
       R"(x.toml:9: model.preset = "gpt2-124m": another architecture's; accepted are presets of model.arch)"
       R"( = "llama")"},
      {"model.arch = \"qwen3\"\nmodel.preset = \"qwen2-0.5b\"",
       {},
       R"(x.toml:9: model.preset = "qwen2-0.5b": another architecture's; accepted are presets of model.arch)"
       R"( = "qwen3")"},
      {"model.arch = \"qwen3\"\nmodel.head_dim = 15",
       {},
       R"(x.toml:9: model.head_dim = 15: heads of 15 channels; accepted are even ones, since RoPE turns)"
       R"( pairs)"},
      {"model.arch = \"qwen2\"\nmodel.qkv_bias = false",
       {},
       R"(x.toml:9: model.qkv_bias = false: model.arch = "qwen2" has it; accepted are true, or model.arch =)"
       R"( "llama")"},
      {"model.arch = \"qwen3\"\nmodel.qk_norm = false",
       {},
       R"(x.toml:9: model.qk_norm = false: model.arch = "qwen3" has it; accepted are true, or model.arch =)"
       R"( "llama")"},
      {"model.arch = \"qwen2\"\nmodel.qk_norm = true",
       {},
       R"(x.toml:9: model.qk_norm = true: nothing reads it if model.arch = "qwen2"; accepted only with)"
       R"( model.arch = "llama", "qwen3")"},
      {R"(model.rope_scaling = {type = "llama3", factor = 8.0})",
       {},
       R"(x.toml:8: model.rope_scaling = {type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor =)"
       R"( 4.0, ...: nothing reads it if model.arch = "gpt2" (default); accepted only with)"
       R"( model.arch = "llama", "qwen2", "qwen3")"},
      {"",
       {"model.arch=linear"},
       R"(command line: model.arch = "linear": it makes its own data; accepted with it is data.synthetic =)"
       R"( true)"},
      {R"(model.arch = "linear")",
       {"data.synthetic=true"},
       R"(x.toml:2: model.layers = 2: nothing reads it if model.arch = "linear"; accepted only with)"
       R"( model.arch = "gpt2", "llama", "qwen2", "qwen3")"},
      {"model.vocab = 100",
       {},
       R"(x.toml:8: model.vocab = 100: data.tokenizer = "bytes" has 256 ids; accepted are 256 or more)"},
      {R"(data.tokenizer = "bpe")",
       {},
       R"(x.toml: model.vocab: missing; give it, or model.preset for a published shape)"},
      {"data.tokenizer = \"bpe\"\nmodel.vocab = 256",
       {},
       R"(x.toml:9: model.vocab = 256: data.tokenizer = "bpe" learns beyond the 256 bytes; accepted are)"
       R"( 257 or more)"},
      {"optim.min_lr = 0.1\noptim.schedule = \"cosine\"",
       {},
       R"(x.toml:8: optim.min_lr = 0.1: accepted are at most optim.lr = 1e-4 (default))"},
      {"optim.min_lr = 1e-5\noptim.schedule = \"constant\"",
       {},
       R"(x.toml:8: optim.min_lr = 1e-5: nothing reads it if optim.schedule = "constant";)"
       R"( accepted only with optim.schedule = "linear", "cosine", "wsd")"},
      {"optim.decay_steps = 5\noptim.schedule = \"constant\"",
       {},
       R"(x.toml:8: optim.decay_steps = 5: nothing reads it if optim.schedule = "constant";)"
       R"( accepted only with optim.schedule = "linear", "cosine", "wsd")"},
      {"checkpoint.keep_best = true\ncheckpoint.every = 0",
       {},
       R"(x.toml:8: checkpoint.keep_best = true: accepted is false if checkpoint.every = 0)"},
      {"checkpoint.keep_best = true\ncheckpoint.every = 5\ndata.val_fraction = 0.0",
       {},
       R"(x.toml:8: checkpoint.keep_best = true: accepted is false if data.val_fraction = 0.0)"},
      {R"(optim.schedule = "wsd")",
       {},
       R"(x.toml: optim.decay_steps: missing; with optim.schedule = "wsd" accepted: integer 1 to)"
       R"( 1000000000000)"},
      {"optim.momentum = 0.9",
       {},
       R"(x.toml:8: optim.momentum = 0.9: nothing reads it if optim.kind = "adamw" (default); accepted)"
       R"( only with optim.kind = "sgd")"},
      {"optim.kind = \"sgd\"\noptim.eps = 1e-6",
       {},
       R"(x.toml:9: optim.eps = 1e-6: nothing reads it if optim.kind = "sgd"; accepted only with)"
       R"( optim.kind = "adamw")"},
      {R"(optim.kind = "sgd")",
       {"optim.betas=[0.5, 0.5]"},
       R"(command line: optim.betas = [0.5, 0.5]: nothing reads it if optim.kind = "sgd"; accepted only)"
       R"( with optim.kind = "adamw")"},
      {"train.base_ranks = 4",
       {},
       R"(x.toml:8: train.base_ranks = 4: nothing reads it if train.batch_scaling = "none" (default);)"
       R"( accepted only with train.batch_scaling = "linear", "sqrt")"},
      {"comm.backend = \"self\"\nrun.ranks = 2",
       {},
       R"(x.toml:8: comm.backend = "self": it is for one rank; accepted with run.ranks = 2 are "auto",)"
       R"( "mpi", "shm", "nccl", "ring")"},
      {"comm.throttle_gbit = -1", {}, R"(x.toml:8: comm.throttle_gbit = -1: accepted: number >= 0)"},
      {"comm.latency_us = inf", {}, R"(x.toml:8: comm.latency_us = inf: accepted: number >= 0)"},
      {"zero.stage = 2\nzero.accumulation = \"local\"",
       {},
       R"(x.toml:9: zero.accumulation = "local": zero.stage = 2 holds no whole gradient; accepted is)"
       R"( "ordered")"},
      {"train.eval_every = 5\ndata.val_fraction = 0",
       {},
       R"(x.toml:8: train.eval_every = 5: no data to evaluate on; accepted is 0 if data.val_fraction =)"
       R"( 0.0)"},
  });
}

TEST_CASE("a deck that lacks what it needs is refused with the key") {
  CHECK(refusal_of("", {}) ==
        "x.toml: data.text: missing; accepted is one of data.text, data.source, data.tokens, data.synthetic");
  std::vector<std::string> given = {"data.text=a.txt"};
  CHECK(refusal_of("", given) ==
        "x.toml: run.steps: missing; accepted is one of run.steps, run.epochs, run.curriculum");
  given.push_back("run.steps=1");
  CHECK(refusal_of("", given) ==
        "x.toml: train.global_batch: missing; accepted is one of train.global_batch, train.accumulate");
  given.push_back("train.accumulate=1");
  for (const std::string key : {"model.dim", "model.layers", "model.heads", "model.seq"}) {
    CHECK(refusal_of("", given) == "x.toml: " + key + ": missing; give it, or model.preset for a published shape");
    given.push_back(std::string(key).append("=2"));
  }
  CHECK(refusal_of("", given).empty());
  CHECK(refusal_of("[run]\n", given).empty());
}

TEST_CASE("a text that is no TOML is refused with its line") {
  for (const std::string line : {"zero.stage = ", "[zero", "zero.stage = 1 2", "run = 5", "= 3"}) {
    const std::string message = refusal_of(kGoodDeck + line, {});
    CHECK(message.rfind("x.toml:8: no TOML: ", 0) == 0);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a key or section that is given twice is refused with both lines") {
  CHECK(refusal_of(kGoodDeck + "run.steps = 11", {}) ==
        "x.toml:8: run.steps: given twice; the first is in line 1; remove one");
  CHECK(refusal_of("[run]\nsteps = 3  # three\n[zero]\nstage = 1\n\nstage=2\n", {}) ==
        "x.toml:6: zero.stage: given twice; the first is in line 4; remove one");
  CHECK(refusal_of("[run]\nsteps = 3\n[zero]\nstage = 1\n[ run ] # again\nseed = 2\n", {}) ==
        "x.toml:5: [run]: given twice; the first is in line 1; remove one");
}

TEST_CASE("an override that is given twice is noted, and the second counts") {
  const auto deck = kozero::io::parse_deck(kGoodDeck, "x.toml", {"optim.lr=1e-3", "zero.stage=1", "optim.lr=2e-3"});
  CHECK(deck.optim.lr == 2e-3);
  CHECK(deck.notes == std::vector<std::string>{"command line: optim.lr is given twice; 0.002 counts, not 0.001"});
  CHECK(kozero::io::parse_deck(kGoodDeck, "x.toml", {"run.steps=11"}).notes.empty());
}

TEST_CASE("a message is one line, however long or odd the value") {
  const std::string endless(5000, 'x');
  CHECK(refusal_of(kGoodDeck, {"zero.stage=\"a\\nb\""}) ==
        R"(command line: zero.stage = "a\u000ab": accepted: 0 | 1 | 2 | 3)");
  CHECK(refusal_of(kGoodDeck, {"zero.stage=" + endless}).size() < 200);
  CHECK(refusal_of(kGoodDeck, {"a\nb.c=1"}).find('\n') == std::string::npos);
}

TEST_CASE("a file that cannot be read is refused by name") {
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      kozero::io::read_deck(path);
    } catch (const kozero::Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("no/such/deck.toml").starts_with("no/such/deck.toml: no readable file: "));
  CHECK(refusal(".") == ".: a folder, not a deck; accepted is a TOML file");
}
