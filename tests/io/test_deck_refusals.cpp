// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck_refusals.cpp: bad names, types, ranges and words in a deck, each with its message.
#include "deck_refusals.hpp"

TEST_CASE("a name that is no key or section is refused with what there is and the nearest") {
  check_refusals({
      {"zero.stge = 2",
       {},
       R"(x.toml:8: zero.stge = 2: no such key; accepted in [zero] are stage, accumulation,)"
       R"( overlap, bucket_mib, prefetch_units, shard_group, offload_optimizer, offload_parameters, offload_dir, offload_mib; did you mean stage?)"},
      {"optm.lr = 1",
       {},
       R"(x.toml:8: [optm]: no such section; accepted are run, model, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"[optm]",
       {},
       R"(x.toml:8: [optm]: no such section; accepted are run, model, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"[sample]",
       {},
       R"(x.toml:8: [sample]: no such section; accepted are run, model, data, train, optim, zero, comm,)"
       R"( checkpoint, log)"},
      {"stage = 2", {}, R"(x.toml:8: stage = 2: no such key; did you mean zero.stage?)"},
      {"speed = 2",
       {},
       R"(x.toml:8: speed = 2: no such key; keys belong to a section, accepted are run, model, data,)"
       R"( train, optim, zero, comm, checkpoint, log)"},
      {"[[zero]]\nstage = 1",
       {},
       R"(x.toml:8: zero = [{stage = 1}]: a section, not a key; accepted is [zero] with keys below it)"},
      {"train.lr = 1e-3", {}, R"(x.toml:8: train.lr = 0.001: no such key; did you mean optim.lr?)"},
      {"optim.learning_rate = 1e-3",
       {},
       R"(x.toml:8: optim.learning_rate = 0.001: no such key; accepted in [optim] are kind, lr, betas,)"
       R"( eps, weight_decay, momentum, schedule, warmup_steps, decay_steps, min_lr)"},
      {"zero.stage.x = 1", {}, R"(x.toml:8: zero.stage = {x = 1}: accepted are 0, 1, 2, 3)"},
      {"[zero.stage]\nx = 1", {}, R"(x.toml:8: zero.stage = {x = 1}: accepted are 0, 1, 2, 3)"},
      {"",
       {"zero.stge=2"},
       R"(command line: zero.stge = 2: no such key; accepted in [zero] are stage, accumulation,)"
       R"( overlap, bucket_mib, prefetch_units, shard_group, offload_optimizer, offload_parameters, offload_dir, offload_mib; did you mean stage?)"},
      {"", {"stage=2"}, R"(command line: stage = 2: no such key; did you mean zero.stage?)"},
      {"",
       {"optm.lr=2"},
       R"(command line: [optm]: no such section; accepted are run, model, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"", {"zero.stage"}, R"(command line: zero.stage: overrides are written section.key=value)"},
      {"", {"run=5"}, R"(command line: run = 5: a section, not a key; accepted is [run] with keys below it)"},
      {"", {"data.text=\xff"}, R"(command line: data.text: the value is neither TOML nor UTF-8 text)"},
      {"",
       {"generate.temperature=1"},
       R"(command line: [generate]: no such section; accepted are run, model, data, train, optim, zero,)"
       R"( comm, checkpoint, log)"},
  });
}

TEST_CASE("a value of another type is refused with the accepted ones") {
  check_refusals({
      {R"(zero.stage = "two")", {}, R"(x.toml:8: zero.stage = "two": accepted are 0, 1, 2, 3)"},
      {"zero.stage = 2.0", {}, R"(x.toml:8: zero.stage = 2.0: accepted are 0, 1, 2, 3)"},
      {R"(optim.lr = "fast")", {}, R"(x.toml:8: optim.lr = "fast": accepted are finite numbers >= 0)"},
      {"run.deterministic = 1", {}, R"(x.toml:8: run.deterministic = 1: accepted are true, false)"},
      {"optim.kind = 3", {}, R"(x.toml:8: optim.kind = 3: accepted are "adamw", "sgd")"},
      {"data.tokens = [1, 2]", {}, R"(x.toml:8: data.tokens = [1, 2]: accepted are lists of texts in quotes)"},
      {"optim.betas = 0.9", {}, R"(x.toml:8: optim.betas = 0.9: accepted are lists of 2 numbers in [0, 1))"},
      {"optim.betas = [0.9, 0.95, 0.99]",
       {},
       R"(x.toml:8: optim.betas = [0.9, 0.95, 0.99]: accepted are lists of 2 numbers in [0, 1))"},
      {R"(optim.betas = ["a", "b"])",
       {},
       R"(x.toml:8: optim.betas = ["a", "b"]: accepted are lists of 2 numbers in [0, 1))"},
      {"run.dir = 2024-01-01", {}, R"(x.toml:8: run.dir = a date or time: accepted are texts in quotes)"},
      {"model.dropout = {a = 1}", {}, R"(x.toml:8: model.dropout = {a = 1}: accepted are numbers in [0, 1))"},
      {"", {"data.text=[]"}, R"(command line: data.text = []: accepted are lists of texts in quotes)"},
      {"", {"run.dir=7"}, R"(command line: run.dir = 7: accepted are texts in quotes)"},
      {"", {"run.dir="}, R"(command line: run.dir = "": accepted are texts in quotes)"},
      {"", {"zero.stage=two"}, R"(command line: zero.stage = "two": accepted are 0, 1, 2, 3)"},
  });
}

TEST_CASE("a value out of its range is refused with the range") {
  check_refusals({
      {"zero.stage = 4", {}, R"(x.toml:8: zero.stage = 4: accepted are 0, 1, 2, 3)"},
      {"zero.stage = -1", {}, R"(x.toml:8: zero.stage = -1: accepted are 0, 1, 2, 3)"},
      {"run.seed = -1", {}, R"(x.toml:8: run.seed = -1: accepted are whole numbers >= 0)"},
      {"run.ranks = 0", {}, R"(x.toml:8: run.ranks = 0: accepted are whole numbers from 1 to 16777216)"},
      {"run.threads = 0", {}, R"(x.toml:8: run.threads = 0: accepted are whole numbers from 1 to 16777216)"},
      {"run.max_minutes = -5", {}, R"(x.toml:8: run.max_minutes = -5: accepted are finite numbers >= 0)"},
      {"run.check_every = -1",
       {},
       R"(x.toml:8: run.check_every = -1: accepted are whole numbers from 0 to 1000000000000)"},
      {"", {"run.steps=0"}, R"(command line: run.steps = 0: accepted are whole numbers from 1 to 1000000000000)"},
      {"", {"run.steps=-3"}, R"(command line: run.steps = -3: accepted are whole numbers from 1 to 1000000000000)"},
      {"", {"model.dim=0"}, R"(command line: model.dim = 0: accepted are whole numbers from 1 to 16777216)"},
      {"",
       {"model.layers=100000"},
       R"(command line: model.layers = 100000: accepted are whole numbers from 1 to 10000)"},
      {"model.vocab = 99999999999",
       {},
       R"(x.toml:8: model.vocab = 99999999999: accepted are whole numbers from 1 to 16777216)"},
      {"model.dropout = 1.0", {}, R"(x.toml:8: model.dropout = 1.0: accepted are numbers in [0, 1))"},
      {"model.dropout = -0.1", {}, R"(x.toml:8: model.dropout = -0.1: accepted are numbers in [0, 1))"},
      {"model.dropout = nan", {}, R"(x.toml:8: model.dropout = nan: accepted are numbers in [0, 1))"},
      {"model.norm_eps = 0", {}, R"(x.toml:8: model.norm_eps = 0: accepted are finite numbers > 0)"},
      {"model.rope_theta = 0.0", {}, R"(x.toml:8: model.rope_theta = 0.0: accepted are finite numbers > 0)"},
      {"data.val_fraction = 1", {}, R"(x.toml:8: data.val_fraction = 1: accepted are numbers from 0 to 0.5)"},
      {"data.val_fraction = 0.9999", {}, R"(x.toml:8: data.val_fraction = 0.9999: accepted are numbers from 0 to 0.5)"},
      {"data.val_fraction = -0.5", {}, R"(x.toml:8: data.val_fraction = -0.5: accepted are numbers from 0 to 0.5)"},
      {R"(data.tokenizer = "")", {}, R"(x.toml:8: data.tokenizer = "": accepted are texts in quotes)"},
      {R"(data.tokens = [""])", {}, R"(x.toml:8: data.tokens = [""]: accepted are lists of texts in quotes)"},
      {"train.micro_batch = 0",
       {},
       R"(x.toml:8: train.micro_batch = 0: accepted are whole numbers from 1 to 16777216)"},
      {"train.grad_clip = -1.0", {}, R"(x.toml:8: train.grad_clip = -1.0: accepted are finite numbers >= 0)"},
      {"train.eval_batches = -1",
       {},
       R"(x.toml:8: train.eval_batches = -1: accepted are whole numbers from 0 to 1000000000000)"},
      {"optim.lr = inf", {}, R"(x.toml:8: optim.lr = inf: accepted are finite numbers >= 0)"},
      {"optim.lr = -1e-3", {}, R"(x.toml:8: optim.lr = -0.001: accepted are finite numbers >= 0)"},
      {"optim.betas = [0.9, 1.0]",
       {},
       R"(x.toml:8: optim.betas = [0.9, 1.0]: accepted are lists of 2 numbers in [0, 1))"},
      {"optim.eps = 0.0", {}, R"(x.toml:8: optim.eps = 0.0: accepted are finite numbers > 0)"},
      {"optim.weight_decay = -0.1", {}, R"(x.toml:8: optim.weight_decay = -0.1: accepted are finite numbers >= 0)"},
      {"optim.momentum = 1.5", {}, R"(x.toml:8: optim.momentum = 1.5: accepted are numbers in [0, 1))"},
      {"optim.warmup_steps = -1",
       {},
       R"(x.toml:8: optim.warmup_steps = -1: accepted are whole numbers from 0 to 1000000000000)"},
      {"comm.timeout_s = 0", {}, R"(x.toml:8: comm.timeout_s = 0: accepted are finite numbers > 0)"},
      {"log.every = 0", {}, R"(x.toml:8: log.every = 0: accepted are whole numbers from 1 to 1000000000000)"},
  });
}

TEST_CASE("a word out of its set is refused with the set and the nearest") {
  check_refusals({
      {R"(model.arch = "lama")",
       {},
       R"(x.toml:8: model.arch = "lama": accepted are "gpt2", "llama", "qwen2", "qwen3", "linear"; did)"
       R"( you mean llama?)"},
      {R"(model.preset = "gpt2-125m")",
       {},
       R"(x.toml:8: model.preset = "gpt2-125m": accepted are "none", "tiny", "small", "medium",)"
       R"( "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m", "llama-1b", "llama-8b", "llama-13b",)"
       R"( "qwen2-0.5b", "qwen-0.6b", "qwen-8b"; did you mean gpt2-124m?)"},
      {R"(optim.kind = "adam")",
       {},
       R"(x.toml:8: optim.kind = "adam": accepted are "adamw", "sgd"; did you mean adamw?)"},
      {R"(optim.schedule = "exponential")",
       {},
       R"(x.toml:8: optim.schedule = "exponential": accepted are "constant", "linear", "cosine", "wsd")"},
      {"zero.shard_group = 0",
       {},
       R"(x.toml:8: zero.shard_group = 0: accepted are "all", "node", whole numbers from 1 to 16777216)"},
      {"zero.shard_group = 2\nzero.stage = 0",
       {},
       R"(x.toml:8: zero.shard_group = "2": nothing reads it where zero.stage = 0; accepted only with zero.stage = 1, 2, 3)"},
      {R"(zero.accumulation = "locale")",
       {},
       R"(x.toml:8: zero.accumulation = "locale": accepted are "ordered", "local"; did you mean local?)"},
      {R"(zero.accumulation = "reduced")",
       {},
       R"(x.toml:8: zero.accumulation = "reduced": accepted are "ordered", "local")"},
      {R"(comm.backend = "gloo")",
       {},
       R"(x.toml:8: comm.backend = "gloo": accepted are "auto", "self", "mpi", "shm", "nccl")"},
      {R"(run.device = "gpu")", {}, R"(x.toml:8: run.device = "gpu": accepted are "auto", "host", "cuda")"},
      {R"(train.batch_scaling = "square")",
       {},
       R"(x.toml:8: train.batch_scaling = "square": accepted are "none", "linear", "sqrt")"},
      {R"(train.on_nonfinite = "ignore")",
       {},
       R"(x.toml:8: train.on_nonfinite = "ignore": accepted are "stop", "skip")"},
  });
}

TEST_CASE("a RoPE scaling that is not Llama 3's, whole and in range, is refused with what is accepted") {
  const std::string accepted =
      R"(: accepted are "none", {type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,)"
      R"( original_seq = 8192} (type and factor needed, 1 <= factor, 0 < low_freq_factor < high_freq_factor))";
  for (const std::string value :
       {R"("llama3")", R"({factor = 8.0})", R"({type = "llama3"})", R"({factor = 4.0, type = "yarn"})",
        R"({factor = 0.5, type = "llama3"})", R"({factor = inf, type = "llama3"})",
        R"({factor = 2.0, kind = 3, type = "llama3"})", R"({factor = 2.0, high_freq_factor = 1.0, type = "llama3"})",
        R"({factor = 2.0, low_freq_factor = 0.0, type = "llama3"})",
        R"({factor = 2.0, original_seq = 8192.5, type = "llama3"})", R"({factor = "2", type = "llama3"})", "8.0",
        "{}"}) {
    const std::string line = "model.rope_scaling = " + value;
    CHECK(refusal_of(kGoodDeck + "model.arch = \"llama\"\n" + line, {}) == "x.toml:9: " + line + accepted);
  }
}
