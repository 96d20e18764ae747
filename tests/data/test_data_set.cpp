// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_data_set.cpp: the tokens of a deck's samples, and decks without usable data.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/settings.hpp>
#include <support/scratch_folder.hpp>

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr std::int64_t kSeq = 4;

io::Deck deck_with(const std::vector<std::string>& overrides) {
  return io::parse_deck(
      "run.steps = 10\nmodel.layers = 1\nmodel.dim = 8\nmodel.heads = 2\nmodel.seq = 4\n"
      "train.global_batch = 1\n",
      "test.toml", overrides);
}

/// A shard of the tokens 0, 1, 2 ... count-1.
std::string shard_of(const tests::ScratchFolder& folder, std::int64_t count) {
  const std::string path = folder / ("count_" + std::to_string(count) + ".bin");
  data::TokenShardWriter writer(path, 1000);
  for (Token token = 0; token < count; ++token) writer.append(std::span(&token, 1));
  writer.close();
  return path;
}

std::vector<Token> sample_of(const data::SampleSource& source, std::int64_t index) {
  std::vector<Token> window(kSeq + 1);
  source.read(index, window);
  return window;
}

data::DataSet opened(const io::Deck& deck) {
  return data::open_data(deck, kSeq, *distributed::make_self_communicator());
}

}  // namespace

TEST_CASE("sample s begins at token s T; validation is the tail that training does not see") {
  const tests::ScratchFolder folder("data_set");
  const auto data =
      opened(deck_with({"data.tokens=" + shard_of(folder, 42), "model.vocab=1000", "data.val_fraction=0.3"}));
  REQUIRE(data.validation != nullptr);
  CHECK(data.train->num_samples() == 7);  // 7 of 10 windows
  CHECK(data.validation->num_samples() == 3);
  CHECK(sample_of(*data.train, 0) == std::vector<Token>{0, 1, 2, 3, 4});
  CHECK(sample_of(*data.train, 6) == std::vector<Token>{24, 25, 26, 27, 28});
  CHECK(sample_of(*data.validation, 0) == std::vector<Token>{28, 29, 30, 31, 32});
  CHECK(sample_of(*data.validation, 2) == std::vector<Token>{36, 37, 38, 39, 40});
}

TEST_CASE("what lies behind the last whole window is its part's tail") {
  const tests::ScratchFolder folder("data_set_tail");
  const auto opened_with = [&](std::int64_t tokens, const std::string& val_fraction) {
    return opened(deck_with(
        {"data.tokens=" + shard_of(folder, tokens), "model.vocab=1000", "data.val_fraction=" + val_fraction}));
  };
  const auto split = opened_with(44, "0.3");
  CHECK(split.train->tail() == 0);
  CHECK(split.validation->tail() == 3);
  std::vector<Token> window(4);
  split.validation->read(3, window);
  CHECK(window == std::vector<Token>{40, 41, 42, 43});
  CHECK(opened_with(44, "0").train->tail() == 3);
  CHECK(opened_with(41, "0").train->tail() == 0);
  CHECK(opened_with(42, "0").train->tail() == 1);
  const auto small = opened_with(3, "0");
  CHECK(small.train->num_samples() == 0);
  CHECK(small.train->tail() == 2);
}

TEST_CASE("too few tokens are refused before anything is made of them") {
  const tests::ScratchFolder folder("data_set_short");
  const auto deck = deck_with({"data.tokens=" + shard_of(folder, 4), "model.vocab=1000"});
  const auto refused = [](const data::DataSet& data, const io::Deck& of) {
    data::require_whole_sample(data, of, kSeq);
  };
  CHECK_THROWS_MATCHES(
      refused(opened(deck), deck), Error,
      MessageMatches(ContainsSubstring("data.tokens holds 4 training tokens, not one sample of model.seq + 1 = 5")));
  const auto text = deck_with({"data.text=" + folder.put("short.txt", "abc"), "data.cache=" + (folder / "cache")});
  CHECK_THROWS_MATCHES(refused(opened(text), text), Error,
                       MessageMatches(ContainsSubstring("data.text holds") && ContainsSubstring("not one sample")));
  const auto one = deck_with({"data.tokens=" + shard_of(folder, 1), "model.vocab=1000"});
  CHECK_THROWS_MATCHES(opened(one), Error, MessageMatches(ContainsSubstring("holds 1 tokens: nothing to predict")));
}

TEST_CASE("an epoch has the training text of a source repeat times, and validation text once") {
  const tests::ScratchFolder folder("data_set_sources");
  std::string a, b;
  for (int i = 0; i < 400; ++i) a += "a" + std::to_string(i) + " ";
  for (int i = 0; i < 300; ++i) b += "b" + std::to_string(i) + " ";
  const auto source = [](const std::string& path, int repeat) {
    return "{text=\"" + path + "\", repeat=" + std::to_string(repeat) + "}";
  };
  const std::string file_a = folder.put("a.txt", a), file_b = folder.put("b.txt", b);
  const auto opened_with = [&](const std::string& sources) {
    return opened(deck_with({"data.source=[" + sources + "]", "data.cache=" + (folder / "cache")}));
  };
  const auto tokens_of = [](const data::TokenShards& shards) {
    std::vector<Token> all(static_cast<std::size_t>(shards.num_tokens()));
    shards.read(0, all);
    return all;
  };
  const auto once = opened_with(source(file_a, 1) + "," + source(file_b, 1));
  const auto twice = opened_with(source(file_a, 1) + "," + source(file_b, 2));
  CHECK_THAT(once.description, ContainsSubstring("now in"));
  CHECK_THAT(twice.description, ContainsSubstring(" from "));  // a mixture of the same tokens
  const auto all = tokens_of(*once.train_shards);
  const auto begin_of_b = std::ranges::find(all, Token{'b'}) - all.begin() - 1;  // after the end-of-text
  auto expected = all;
  expected.insert(expected.end(), all.begin() + begin_of_b, all.end());
  CHECK(tokens_of(*twice.train_shards) == expected);
  CHECK(tokens_of(*twice.validation_shards) == tokens_of(*once.validation_shards));
  const auto letters_in = [](const std::vector<Token>& tokens) {  // without end-of-text
    return static_cast<std::size_t>(std::ranges::count_if(tokens, [](Token token) { return token != 0; }));
  };
  CHECK(letters_in(all) + letters_in(tokens_of(*twice.validation_shards)) == a.size() + b.size());
  const auto size = static_cast<std::int64_t>(expected.size());
  CHECK(twice.train->num_samples() == (size - 1) / kSeq);
  CHECK(
      sample_of(*twice.train, size / kSeq - 2) ==
      std::vector<Token>(expected.begin() + (size / kSeq - 2) * kSeq, expected.begin() + (size / kSeq - 1) * kSeq + 1));
  CHECK_THAT(twice.description, ContainsSubstring("; an epoch has 1 x data.source[0] (" + std::to_string(begin_of_b) +
                                                  " tokens), 2 x data.source[1] (" +
                                                  std::to_string(all.size() - begin_of_b) + " tokens)"));
  CHECK(twice.train_bytes_per_token.value() < 1.0);  // counts end-of-text tokens too
  CHECK(data::vocab_of(deck_with({"data.source=[{text=\"a.txt\"}]"})) == 256);
  const auto tiny =
      deck_with({"data.source=[" + source(folder.put("tiny.txt", "abc"), 1) + "]", "data.cache=" + (folder / "cache")});
  CHECK_THROWS_MATCHES(data::require_whole_sample(opened(tiny), tiny, kSeq), Error,
                       MessageMatches(ContainsSubstring("data.source holds") && ContainsSubstring("not one sample")));
}

TEST_CASE("the sources of a mixture have windows of their own tokens") {
  const tests::ScratchFolder folder("data_set_mixture");
  std::string a, b;
  for (int i = 0; i < 400; ++i) a += "a" + std::to_string(i) + " ";
  for (int i = 0; i < 300; ++i) b += "b" + std::to_string(i) + " ";
  const std::string first = "{text=\"" + folder.put("a.txt", a) + "\", name=\"aa\", weight=3}";
  std::string second = ", {text=\"" + folder.put("b.txt", b) + "\", weight=1, epochs=1}";
  const std::string cache = "data.cache=" + (folder / "cache");
  const auto deck = deck_with({"data.source=[" + first + second + "]", cache, "data.val_fraction=0.2"});
  const auto data = opened(deck);
  REQUIRE(data.is_mixture());
  REQUIRE(data.sources.size() == 2);
  CHECK(data.sources[0].name == "aa");
  CHECK(data.sources[1].name == "1");
  const std::int64_t of_a = data.sources[0].train->num_samples(), of_b = data.sources[1].train->num_samples();
  CHECK(data.train->num_samples() == of_a + of_b);
  CHECK(of_a == (data.sources[0].tokens - 1) / kSeq);
  std::vector<Token> begin(static_cast<std::size_t>(kSeq + 1));
  data.train_shards->read(data.sources[0].tokens, begin);
  CHECK(sample_of(*data.train, of_a) == begin);
  CHECK(begin[1] == 'b');
  for (std::int64_t s = 0; s < of_a; ++s) CHECK(std::ranges::count(sample_of(*data.train, s), Token{'b'}) == 0);
  std::vector<Token> read;  // validation of b: all its tokens, tail included
  const auto& of_val = *data.sources[1].validation;
  for (std::int64_t s = 0; s < of_val.num_samples(); ++s) {
    const auto window = sample_of(of_val, s);
    read.insert(read.end(), window.begin(), window.end() - 1);
  }
  std::vector<Token> tail(static_cast<std::size_t>(of_val.tail() + 1));
  of_val.read(of_val.num_samples(), tail);
  read.insert(read.end(), tail.begin(), tail.end());
  std::vector<Token> all(static_cast<std::size_t>(data.validation_shards->num_tokens()));
  data.validation_shards->read(0, all);
  CHECK(std::vector<Token>(all.end() - std::ssize(read), all.end()) == read);
  CHECK(std::ranges::count(read, Token{'a'}) == 0);
  CHECK(std::ranges::count(read, Token{'b'}) == std::ranges::count(all, Token{'b'}));

  const auto sampler = data::sampler_of(data, 1, 4);  // 3 samples of a and 1 of b in a step
  REQUIRE(sampler.mixture() != nullptr);
  CHECK_NOTHROW(data::require_passes(data, deck, sampler, of_b));
  const std::string possible = std::to_string(of_b), more = std::to_string(of_b + 1);
  CHECK_THROWS_MATCHES(
      data::require_passes(data, deck, sampler, of_b + 1), Error,
      MessageMatches(ContainsSubstring("command line: data.source[1].epochs = 1: source 1 ends at step " + possible +
                                       " of " + more) &&
                     ContainsSubstring("accepted: at most " + possible + " steps")));
  CHECK_THAT(data::mixture_text(data, sampler, 0, 10), ContainsSubstring("; of each 1000 samples 750 are of aa ("));

  const auto comm = distributed::make_self_communicator();
  data::DataCheck check({data.train_shards}, *comm);
  const auto identity = data::identity_of(data, check, *comm);
  const auto others = opened(deck_with(
      {"data.source=[" + first + second.replace(second.find("=1,"), 3, "=2,") + "]", cache, "data.val_fraction=0.2"}));
  data::DataCheck other_check({others.train_shards}, *comm);
  const auto other = data::identity_of(others, other_check, *comm);
  CHECK(data::difference(identity, identity).empty());
  CHECK_THAT(data::difference(identity, other), ContainsSubstring("their mixture is 600/1000 from"));
  CHECK_THAT(data::difference(identity, check.identity(*comm)), ContainsSubstring("their mixture is none and was 750"));
}

TEST_CASE("a tokenizer with more ids than the model is refused, for shards too") {
  const tests::ScratchFolder folder("data_set_vocab");
  const auto deck = deck_with({"data.tokens=" + shard_of(folder, 42), "data.tokenizer=bytes", "model.vocab=100"});
  const auto data = opened(deck);
  CHECK(data.vocab == 256);
  CHECK_THROWS_MATCHES(train::model_config(deck, data.vocab), Error,
                       MessageMatches(ContainsSubstring("model.vocab = 100")));
}

TEST_CASE("masked documents need a token with which they begin") {
  const tests::ScratchFolder folder("data_set_documents");
  const std::string tokens = "data.tokens=" + shard_of(folder, 42);
  CHECK_THROWS_MATCHES(opened(deck_with({tokens, "model.vocab=1000", "data.mask_documents=true"})), Error,
                       MessageMatches(ContainsSubstring("data.mask_documents = true: data.tokens does not say which "
                                                        "token begins a document; give its tokenizer as "
                                                        "data.tokenizer")));
  const auto data = opened(deck_with({tokens, "model.vocab=1000", "data.tokenizer=bytes", "data.mask_documents=true"}));
  CHECK(data.train->document_start() == 0);
  // Without the line break it is the byte tokenizer, whose byte 0 is end-of-text.
  const std::string without = folder.put("tokenizer.json", io::ByteTokenizer::hugging_face_text() + "\n");
  CHECK_THROWS_MATCHES(
      opened(deck_with({tokens, "model.vocab=1000", "data.tokenizer=" + without, "data.mask_documents=true"})), Error,
      MessageMatches(ContainsSubstring("has no end-of-text token, with which documents begin; accepted is false, or a "
                                       "tokenizer that has one")));
}

TEST_CASE("the synthetic source has the model's tokens, named by key, by preset, or by neither") {
  CHECK(data::vocab_of(deck_with({"data.synthetic=true", "model.vocab=24"})) == 24);
  CHECK(data::vocab_of(deck_with({"data.synthetic=true", "model.preset=gpt2-124m"})) == 50257);
  CHECK(data::vocab_of(deck_with({"data.synthetic=true", "model.preset=tiny"})) == 256);
  CHECK(data::vocab_of(deck_with({"data.synthetic=true"})) == 64);
}

TEST_CASE("the vocabulary of a deck is known without its text, or refused as a deck's mistake") {
  CHECK(data::vocab_of(deck_with({"data.text=text"})) == 256);
  CHECK(data::vocab_of(deck_with({"data.text=text", "data.tokenizer=bpe:300"})) == 300);
  for (const char* spec : {"bpe:many", "bpe:1", "bpe:300x", "nowhere.json"}) {
    CHECK_THROWS_AS(data::vocab_of(deck_with({"data.text=text", std::string("data.tokenizer=") + spec})), Error);
  }
  CHECK_THROWS_MATCHES(data::vocab_of(deck_with({"data.tokens=a.bin"})), Error,
                       MessageMatches(ContainsSubstring("give model.vocab")));
}

TEST_CASE("tokens of text lie in data.cache, or in a folder beside the run that other runs beside it share") {
  CHECK(data::token_cache_of(deck_with({"data.text=a", "run.dir=runs/lr-1"})) == "runs/.tokens");
  CHECK(data::token_cache_of(deck_with({"data.text=a", "run.dir=/a/lr-2/"})) == "/a/.tokens");
  CHECK(data::token_cache_of(deck_with({"data.text=a", "run.dir=run"})) == ".tokens");
  CHECK(data::token_cache_of(deck_with({"data.text=a", "run.dir=run", "data.cache=/shared"})) == "/shared");
  const tests::ScratchFolder folder("data_set_cache");
  std::string words;
  for (int i = 0; i < 200; ++i) words += "in 2025 ";
  const std::string text = folder.put("text.txt", words);
  const auto opened_as = [&](const std::string& arch) {
    return opened(deck_with({"data.text=" + text, "data.tokenizer=bpe:300", "model.vocab=300",
                             "run.dir=" + (folder / "run"), "model.arch=" + arch}));
  };
  const auto gpt2 = opened_as("gpt2"), qwen2 = opened_as("qwen2");
  CHECK(gpt2.tokenizer->encode(" 2025").size() == 1);
  CHECK(qwen2.tokenizer->encode(" 2025").size() == 5);  // transformers gives Qwen2 its own split
  CHECK(gpt2.train_shards->shards()[0].path() != qwen2.train_shards->shards()[0].path());
  CHECK_THAT(gpt2.description, ContainsSubstring(" now in " + (folder / ".tokens/")));
  CHECK_THAT(gpt2.description, ContainsSubstring("; each document begins with end-of-text (id "));
  CHECK_THAT(opened_as("gpt2").description, ContainsSubstring(" from " + (folder / ".tokens/")));
}
