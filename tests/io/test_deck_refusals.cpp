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
       R"(x.toml:8: [optm]: no such section; accepted are run, model, model.lora, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"[optm]",
       {},
       R"(x.toml:8: [optm]: no such section; accepted are run, model, model.lora, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"[sample]",
       {},
       R"(x.toml:8: [sample]: no such section; accepted are run, model, model.lora, data, train, optim, zero, comm,)"
       R"( checkpoint, log)"},
      {"stage = 2", {}, R"(x.toml:8: stage = 2: no such key; did you mean zero.stage?)"},
      {"speed = 2",
       {},
       R"(x.toml:8: speed = 2: no such key; keys belong to a section, accepted are run, model, model.lora, data,)"
       R"( train, optim, zero, comm, checkpoint, log)"},
      {"[[zero]]\nstage = 1",
       {},
       R"(x.toml:8: zero = [{stage = 1}]: a section, not a key; accepted is [zero] with keys below it)"},
      {"train.lr = 1e-3", {}, R"(x.toml:8: train.lr = 0.001: no such key; did you mean optim.lr?)"},
      {"optim.learning_rate = 1e-3",
       {},
       R"(x.toml:8: optim.learning_rate = 0.001: no such key; did you mean optim.lr?)"},
      {"zero.stage.x = 1", {}, R"(x.toml:8: zero.stage = {x = 1}: accepted: 0 | 1 | 2 | 3)"},
      {"[zero.stage]\nx = 1", {}, R"(x.toml:8: zero.stage = {x = 1}: accepted: 0 | 1 | 2 | 3)"},
      {"",
       {"zero.stge=2"},
       R"(command line: zero.stge = 2: no such key; accepted in [zero] are stage, accumulation,)"
       R"( overlap, bucket_mib, prefetch_units, shard_group, offload_optimizer, offload_parameters, offload_dir, offload_mib; did you mean stage?)"},
      {"", {"stage=2"}, R"(command line: stage = 2: no such key; did you mean zero.stage?)"},
      {"",
       {"optm.lr=2"},
       R"(command line: [optm]: no such section; accepted are run, model, model.lora, data, train, optim, zero, comm,)"
       R"( checkpoint, log; did you mean optim?)"},
      {"", {"zero.stage"}, R"(command line: zero.stage: overrides are written section.key=value)"},
      {"", {"run=5"}, R"(command line: run = 5: a section, not a key; accepted is [run] with keys below it)"},
      {"", {"data.text=\xff"}, R"(command line: data.text: the value is neither TOML nor UTF-8 text)"},
      {"",
       {"generate.temperature=1"},
       R"(command line: [generate]: no such section; accepted are run, model, model.lora, data, train, optim, zero,)"
       R"( comm, checkpoint, log)"},
  });
}

TEST_CASE("a value of another type is refused with the accepted ones") {
  check_refusals({
      {R"(zero.stage = "two")", {}, R"(x.toml:8: zero.stage = "two": accepted: 0 | 1 | 2 | 3)"},
      {"zero.stage = 1.5", {}, R"(x.toml:8: zero.stage = 1.5: accepted: 0 | 1 | 2 | 3)"},
      {R"(optim.lr = "fast")", {}, R"(x.toml:8: optim.lr = "fast": accepted: number >= 0)"},
      {"run.deterministic = 1", {}, R"(x.toml:8: run.deterministic = 1: accepted: true | false)"},
      {"optim.kind = 3", {}, R"(x.toml:8: optim.kind = 3: accepted: adamw | sgd)"},
      {"data.tokens = [1, 2]",
       {},
       R"(x.toml:8: data.tokens = [1, 2]: accepted: path of a token shard (.bin), or a list of these)"},
      {"optim.betas = 0.9", {}, R"(x.toml:8: optim.betas = 0.9: accepted: list of 2 numbers in [0, 1))"},
      {"optim.betas = [0.9, 0.95, 0.99]",
       {},
       R"(x.toml:8: optim.betas = [0.9, 0.95, 0.99]: accepted: list of 2 numbers in [0, 1))"},
      {R"(optim.betas = ["a", "b"])",
       {},
       R"(x.toml:8: optim.betas = ["a", "b"]: accepted: list of 2 numbers in [0, 1))"},
      {"run.dir = 2024-01-01", {}, R"(x.toml:8: run.dir = a date or time: accepted: path of a folder)"},
      {"model.dropout = {a = 1}", {}, R"(x.toml:8: model.dropout = {a = 1}: accepted: number in [0, 1))"},
      {"",
       {"data.text=[]"},
       R"(command line: data.text = []: accepted: path of a file or a folder, or a list of these)"},
      {"", {"run.dir=7"}, R"(command line: run.dir = 7: accepted: path of a folder)"},
      {"", {"run.dir="}, R"(command line: run.dir = "": accepted: path of a folder)"},
      {"", {"zero.stage=two"}, R"(command line: zero.stage = "two": accepted: 0 | 1 | 2 | 3)"},
  });
}

TEST_CASE("a value out of its range is refused with the range") {
  check_refusals({
      {"zero.stage = 4", {}, R"(x.toml:8: zero.stage = 4: accepted: 0 | 1 | 2 | 3)"},
      {"zero.stage = -1", {}, R"(x.toml:8: zero.stage = -1: accepted: 0 | 1 | 2 | 3)"},
      {"run.seed = -1", {}, R"(x.toml:8: run.seed = -1: accepted: integer >= 0)"},
      {"run.ranks = 0", {}, R"(x.toml:8: run.ranks = 0: accepted: integer 1 to 16777216)"},
      {"run.threads = 0", {}, R"(x.toml:8: run.threads = 0: accepted: integer 1 to 16777216)"},
      {"run.max_minutes = -5",
       {},
       R"(x.toml:8: run.max_minutes = -5: accepted: number >= 0, or a time as 90s, 10min, 2h)"},
      {"run.check_every = -1", {}, R"(x.toml:8: run.check_every = -1: accepted: integer 0 to 1000000000000)"},
      {"", {"run.steps=0"}, R"(command line: run.steps = 0: accepted: integer 1 to 1000000000000)"},
      {"", {"run.steps=-3"}, R"(command line: run.steps = -3: accepted: integer 1 to 1000000000000)"},
      {"", {"model.dim=0"}, R"(command line: model.dim = 0: accepted: integer 1 to 16777216)"},
      {"", {"model.layers=100000"}, R"(command line: model.layers = 100000: accepted: integer 1 to 10000)"},
      {"model.vocab = 99999999999", {}, R"(x.toml:8: model.vocab = 99999999999: accepted: integer 1 to 16777216)"},
      {"model.dropout = 1.0", {}, R"(x.toml:8: model.dropout = 1.0: accepted: number in [0, 1))"},
      {"model.dropout = -0.1", {}, R"(x.toml:8: model.dropout = -0.1: accepted: number in [0, 1))"},
      {"model.dropout = nan", {}, R"(x.toml:8: model.dropout = nan: accepted: number in [0, 1))"},
      {"model.norm_eps = 0", {}, R"(x.toml:8: model.norm_eps = 0: accepted: number > 0)"},
      {"model.rope_theta = 0.0", {}, R"(x.toml:8: model.rope_theta = 0.0: accepted: number > 0)"},
      {"data.val_fraction = 1", {}, R"(x.toml:8: data.val_fraction = 1: accepted: number 0 to 0.5)"},
      {"data.val_fraction = 0.9999", {}, R"(x.toml:8: data.val_fraction = 0.9999: accepted: number 0 to 0.5)"},
      {"data.val_fraction = -0.5", {}, R"(x.toml:8: data.val_fraction = -0.5: accepted: number 0 to 0.5)"},
      {R"(data.tokenizer = "")",
       {},
       R"(x.toml:8: data.tokenizer = "": accepted: bytes | chars | bpe | bpe:N |)"
       R"( path of a tokenizer.json or SentencePiece .model)"},
      {R"(data.tokens = [""])",
       {},
       R"(x.toml:8: data.tokens = [""]: accepted: path of a token shard (.bin), or a list of these)"},
      {"train.micro_batch = 0", {}, R"(x.toml:8: train.micro_batch = 0: accepted: integer 1 to 16777216)"},
      {"train.grad_clip = -1.0", {}, R"(x.toml:8: train.grad_clip = -1.0: accepted: number >= 0)"},
      {"train.eval_batches = -1", {}, R"(x.toml:8: train.eval_batches = -1: accepted: integer 0 to 1000000000000)"},
      {"optim.lr = inf", {}, R"(x.toml:8: optim.lr = inf: accepted: number >= 0)"},
      {"optim.lr = -1e-3", {}, R"(x.toml:8: optim.lr = -0.001: accepted: number >= 0)"},
      {"optim.betas = [0.9, 1.0]", {}, R"(x.toml:8: optim.betas = [0.9, 1.0]: accepted: list of 2 numbers in [0, 1))"},
      {"optim.eps = 0.0", {}, R"(x.toml:8: optim.eps = 0.0: accepted: number > 0)"},
      {"optim.weight_decay = -0.1", {}, R"(x.toml:8: optim.weight_decay = -0.1: accepted: number >= 0)"},
      {"optim.momentum = 1.5", {}, R"(x.toml:8: optim.momentum = 1.5: accepted: number in [0, 1))"},
      {"optim.warmup_steps = -1", {}, R"(x.toml:8: optim.warmup_steps = -1: accepted: integer 0 to 1000000000000)"},
      {"comm.timeout_s = 0", {}, R"(x.toml:8: comm.timeout_s = 0: accepted: number > 0, or a time as 90s, 10min, 2h)"},
      {"log.every = 0", {}, R"(x.toml:8: log.every = 0: accepted: integer 1 to 1000000000000)"},
  });
}

TEST_CASE("a word out of its set is refused with the set and the nearest") {
  check_refusals({
      {R"(model.arch = "lama")",
       {},
       R"(x.toml:8: model.arch = "lama": accepted: gpt2 | llama | qwen2 | qwen3 | linear; did)"
       R"( you mean llama?)"},
      {R"(model.preset = "gpt2-125m")",
       {},
       R"(x.toml:8: model.preset = "gpt2-125m": accepted: none | tiny | small | medium | gpt2-124m | gpt2-350m)"
       R"( | gpt2-774m | gpt2-1558m | llama-1b | llama-3b | llama-8b | llama-13b | llama-70b | llama3.1-8b)"
       R"( | llama3.1-70b | qwen2-0.5b | qwen2.5-0.5b | qwen2.5-1.5b | qwen2.5-3b | qwen2.5-7b | qwen2.5-14b)"
       R"( | qwen2.5-32b | qwen2.5-72b | qwen3-0.6b | qwen3-8b; did you mean gpt2-124m?)"},
      {R"(optim.kind = "adam")", {}, R"(x.toml:8: optim.kind = "adam": accepted: adamw | sgd; did you mean adamw?)"},
      {R"(optim.schedule = "exponential")",
       {},
       R"(x.toml:8: optim.schedule = "exponential": accepted: constant | linear | cosine | wsd)"},
      {"zero.shard_group = 0", {}, R"(x.toml:8: zero.shard_group = 0: accepted: all | node | integer 1 to 16777216)"},
      {"zero.shard_group = 2\nzero.stage = 0",
       {},
       R"(x.toml:8: zero.shard_group = 2: nothing reads it if zero.stage = 0; accepted only with zero.stage = 1, 2, 3)"},
      {R"(zero.accumulation = "locale")",
       {},
       R"(x.toml:8: zero.accumulation = "locale": accepted: ordered | local; did you mean local?)"},
      {R"(zero.accumulation = "reduced")", {}, R"(x.toml:8: zero.accumulation = "reduced": accepted: ordered | local)"},
      {R"(comm.backend = "gloo")",
       {},
       R"(x.toml:8: comm.backend = "gloo": accepted: auto | self | mpi | shm | nccl | ring; did you mean mpi?)"},
      {R"(run.device = "gpu")",
       {},
       R"(x.toml:8: run.device = "gpu": accepted: auto | host | cuda; did you mean cuda?)"},
      {R"(train.batch_scaling = "square")",
       {},
       R"(x.toml:8: train.batch_scaling = "square": accepted: none | linear | sqrt)"},
      {R"(train.on_nonfinite = "ignore")", {}, R"(x.toml:8: train.on_nonfinite = "ignore": accepted: stop | skip)"},
  });
}

TEST_CASE("a RoPE scaling that is not Llama 3's, whole and in range, is refused with what is accepted") {
  const std::string accepted =
      R"(: accepted: none | {type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,)"
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

TEST_CASE("words of other programs are answered with ours") {
  check_refusals({
      {"model.hidden_size = 64", {}, R"(x.toml:8: model.hidden_size = 64: no such key; did you mean model.dim?)"},
      {"", {"num_hidden_layers=2"}, R"(command line: num_hidden_layers = 2: no such key; did you mean model.layers?)"},
      {"",
       {"training.gradient_accumulation_steps=2"},
       R"(command line: training.gradient_accumulation_steps: no such key; did you mean train.accumulate?)"},
      {"zero.offload_optimizer = \"cpu\"",
       {},
       R"(x.toml:8: zero.offload_optimizer = "cpu": accepted: none | host | disk; did you mean host?)"},
      {"",
       {"train.precision=bfloat16"},
       R"(command line: train.precision = "bfloat16": accepted: f32 | bf16 | fp16; did you mean bf16?)"},
      {"",
       {"train.recompute=true"},
       R"(command line: train.recompute = true: accepted: none | selective | full | integer 1 to 64; did you mean full?)"},
      {"",
       {"checkpoint.resume=true"},
       R"(command line: checkpoint.resume = true: accepted: none | auto | path of a checkpoint, a run or a weights)"
       R"( file; did you mean auto?)"},
      {"", {"lora.rank=8"}, R"(command line: [lora]: no such section; did you mean [model.lora]?)"},
  });
}

TEST_CASE("sizes and times with a wrong unit are refused with what is accepted") {
  check_refusals({
      {"",
       {"comm.timeout_s=10m"},
       R"(command line: comm.timeout_s = "10m": accepted: number > 0, or a time as 90s, 10min, 2h)"},
      {"",
       {"zero.bucket_mib=16G"},
       R"(command line: zero.bucket_mib = "16G": accepted: number 0 to 16777216, or a size as 512MiB, 2GB)"},
      {"",
       {"checkpoint.staging_mib=-1GiB"},
       R"(command line: checkpoint.staging_mib = "-1GiB": accepted: integer 0 to 16777216, or a size as 512MiB, 2GB)"},
      {"", {"run.steps=10s"}, R"(command line: run.steps = "10s": accepted: integer 1 to 1000000000000)"},
  });
}

TEST_CASE("control characters in a run's folder and NULs in any text are refused, on one line") {
  check_refusals({
      {R"(run.dir = "a\u0000b")",
       {},
       R"(x.toml:8: run.dir = "a\u0000b": it holds a NUL character; accepted: text without one)"},
      {R"(data.tokens = ["a\u0000b"])",
       {},
       R"(x.toml:8: data.tokens = ["a\u0000b"]: it holds a NUL character; accepted: text without one)"},
      {"",
       {"run.dir=a\nb"},
       R"(command line: run.dir = "a\u000ab": it holds a control character; accepted: a path without control )"
       "characters"},
      {"",
       {"run.dir=a\xc2\x9b"
        "b"},
       "command line: run.dir = \"a\\u009bb\": it holds a control character; accepted: a path without control "
       "characters"},
      {"",
       {"zero.st\nge=2"},
       R"(command line: zero.st\nge = 2: no such key; accepted in [zero] are stage, accumulation,)"
       R"( overlap, bucket_mib, prefetch_units, shard_group, offload_optimizer, offload_parameters, offload_dir, offload_mib; did you mean stage?)"},
  });
  try {
    kozero::io::parse_deck("x = ", "a\n\x1b[2J.toml");
    FAIL("nothing was thrown");
  } catch (const kozero::Error& error) {
    CHECK(std::string(error.what()).starts_with(R"(a\n\x1b[2J.toml:1: no TOML: )"));
  }
}

TEST_CASE("deep nesting is refused before it is parsed") {
  const auto repeated = [](std::string text, const std::string& part, const std::string& end = "") {
    for (int i = 0; i < 50000; ++i) text += part;
    return text.append(end);
  };
  const std::string deep = "it nests more than 32 deep; accepted: keys below a [section]";
  CHECK(refusal_of(repeated("run.steps = 1\na", ".a", " = 1"), {}) == "x.toml:2: " + deep);
  CHECK(refusal_of(repeated("[a", " . \"a\"", "]"), {}) == "x.toml:1: " + deep);
  CHECK(refusal_of(repeated("[[a", ".a", "]]"), {}) == "x.toml:1: " + deep);
  CHECK(refusal_of(repeated("data.text = \"\"\"\n[[[\"\"\"\nx = ", "["), {}) == "x.toml:3: " + deep);
  CHECK(refusal_of(repeated("x = ", "{a = "), {}) == "x.toml:1: " + deep);
  CHECK_FALSE(refusal_of(kGoodDeck, {repeated("data.text=", "[")}).starts_with("x.toml"));
  CHECK(refusal_of(kGoodDeck, {repeated("a", ".a", "=1")}).starts_with("command line: [a]: no such section"));
  // Brackets in a text or a comment do not count.
  CHECK(refusal_of(kGoodDeck + repeated("# ", "[.", "\nrun.dir = '") + std::string(100, '[') + "'\n", {}).empty());
}
