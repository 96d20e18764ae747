// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_tokenizer.cpp: byte-level BPE: encoding, decoding, its files; the byte tokenizer.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <iostream>
#include <random>

#include <nlohmann/json.hpp>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

using namespace tests;

using Catch::Matchers::ContainsSubstring;

namespace {

/// English-like text: words of a small vocabulary with a skewed frequency.
std::string words(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> vocabulary;
  for (int i = 0; i < 3000; ++i) {
    std::string word;
    for (unsigned n = 2 + random() % 8; n > 0; --n) word.push_back(static_cast<char>('a' + random() % 26));
    vocabulary.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    const double u = static_cast<double>(random() % 10000 + 1) / 10000.0;
    text += vocabulary[static_cast<std::size_t>(2999.0 * u * u * u)];
    text += random() % 12 == 0 ? (random() % 2 == 0 ? ".\n" : ", it's ") : " ";
  }
  return text;
}

std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFF);
  return bytes;
}

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> texts = {
      "",
      "a",
      " ",
      "\n\n\n",
      "  two  blanks ",
      "it's we've I'd 12345 x_y != z",
      "<|endoftext|>",
      "\xC3\xA9t\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 \xE3\x80\x80wide",
      std::string("\0nul\0", 5),
      "\xC3",
      "\xE4\xBD",
      "\xF0\x9F\x98",
      "\xC0\xAF",
      "\xED\xA0\x80",
      "\xF4\x90\x80\x80",
      "ok\xFF\xFE ok\x80",
      "\xF8\x88"};
  return texts;
}

/// A corpus of one document, given as one block.
class OneText final : public Corpus {
 public:
  explicit OneText(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] std::int64_t bytes() const override { return static_cast<std::int64_t>(text_.size()); }
  [[nodiscard]] std::unique_ptr<DocumentReader> read(std::int64_t /*block_bytes*/) const override {
    return std::make_unique<Reader>(text_);
  }

 private:
  class Reader final : public DocumentReader {
   public:
    explicit Reader(std::string text) : text_(std::move(text)) {}
    bool next(TextBlock& block) override {
      block = TextBlock();
      block.text = std::exchange(text_, "");
      block.starts_document = true;
      return !block.text.empty();
    }

   private:
    std::string text_;
  };

  std::string text_;
};

std::unique_ptr<BpeTokenizer> trained(int vocab) {
  return train_bpe(OneText(words(200000, 1)), vocab, published_split(""));
}

}  // namespace

TEST_CASE("every byte sequence round-trips through both tokenizers") {
  const ScratchFolder folder("roundtrip");
  const auto bytes = make_tokenizer("bytes");
  const auto learned = trained(1000);
  const BpeTokenizer& bpe = *learned;
  for (const Tokenizer* tokenizer : {static_cast<const Tokenizer*>(bytes.get()), static_cast<const Tokenizer*>(&bpe)}) {
    for (const auto& text : odd_texts()) CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    const std::string noise = random_bytes(100000, 7);
    CHECK(tokenizer->decode(tokenizer->encode(noise)) == noise);
    for (const Token token : tokenizer->encode(noise)) REQUIRE((token >= 0 && token < tokenizer->vocab_size()));
  }
}

TEST_CASE("byte-pair encoding shortens what it was trained on") {
  const ScratchFolder folder("shorten");
  const auto learned = trained(2000);
  const BpeTokenizer& bpe = *learned;
  CHECK(bpe.vocab_size() == 2000);
  CHECK(bpe.name() == "bpe:2000");
  CHECK(bpe.end_of_text() == 1999);
  const std::string text = words(20000, 2);
  const auto tokens = bpe.encode(text);
  CHECK(static_cast<double>(text.size()) / static_cast<double>(tokens.size()) > 1.5);
  CHECK(bpe.encode("a<|endoftext|>b") == std::vector<Token>{'a', bpe.end_of_text(), 'b'});
  CHECK(bpe.decode(std::vector<Token>{bpe.end_of_text()}) == "<|endoftext|>");
}

TEST_CASE("a saved tokenizer is read back equal, and is a Hugging Face tokenizer.json") {
  const ScratchFolder folder("saved");
  const auto learned = trained(600);
  const BpeTokenizer& bpe = *learned;
  bpe.save(folder / "tokenizer.json");
  const auto again = make_tokenizer(folder / "tokenizer.json");
  CHECK(again->vocab_size() == bpe.vocab_size());
  const std::string text = words(5000, 3) + odd_texts()[7] + odd_texts()[13];
  CHECK(again->encode(text) == bpe.encode(text));
  again->save(folder / "twice.json");
  CHECK(bytes_of(folder / "twice.json") == bytes_of(folder / "tokenizer.json"));

  const auto json = nlohmann::json::parse(bytes_of(folder / "tokenizer.json"));
  CHECK(json["model"]["type"] == "BPE");
  CHECK(json["model"]["vocab"]["\xC4\xA0"] == 32);  // the blank, in GPT-2's alphabet
  CHECK(json["model"]["vocab"].size() == 600);
  CHECK(json["model"]["merges"].size() == 343);

  make_tokenizer("bytes")->save(folder / "bytes.json");
  CHECK(make_tokenizer(folder / "bytes.json")->name() == "bytes");
}

TEST_CASE("a tokenizer learned with Qwen's split composes text, cuts numbers into digits, and says so in its file") {
  const ScratchFolder folder("qwen");
  std::string text;
  for (int i = 0; i < 50; ++i) text += "in 2025 e\xCC\x81t\xC3\xA9 ";
  const OneText corpus(text);
  const auto gpt2 = make_tokenizer("bpe:300", &corpus);
  const auto qwen = make_tokenizer("bpe:300", &corpus, "Qwen 2 and 3");
  CHECK(gpt2->encode(" 2025").size() == 1);
  CHECK(qwen->encode(" 2025").size() == 5);
  CHECK(gpt2->encode("e\xCC\x81") != gpt2->encode("\xC3\xA9"));
  CHECK(qwen->encode("e\xCC\x81") == qwen->encode("\xC3\xA9"));
  CHECK(qwen->encode(" e\xCC\x81t\xC3\xA9").size() == 1);  // learned from composed text
  qwen->save(folder / "tokenizer.json");
  CHECK(make_tokenizer(folder / "tokenizer.json")->encode(text) == qwen->encode(text));
  const auto json = nlohmann::json::parse(bytes_of(folder / "tokenizer.json"));
  CHECK(json["normalizer"]["type"] == "NFC");
  CHECK(json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] == published_split("Qwen 2 and 3").expression);
  CHECK(json["pre_tokenizer"]["pretokenizers"][1]["use_regex"] == false);
}

TEST_CASE("bytes as a Hugging Face tokenizer.json are BPE of 256 characters without merges, and read back as bytes") {
  const ScratchFolder folder("byte_json");
  const auto json = nlohmann::json::parse(ByteTokenizer::hugging_face_text());
  CHECK(json["model"]["type"] == "BPE");
  CHECK(json["model"]["vocab"].size() == 256);
  CHECK(json["model"]["vocab"]["\xC4\xA0"] == 32);
  CHECK(json["model"]["merges"].empty());
  CHECK(json["added_tokens"].empty());
  const auto read = make_tokenizer(folder.put("tokenizer.json", ByteTokenizer::hugging_face_text()));
  CHECK(read->name() == "bytes");
  CHECK(read->end_of_text() == 0);
  // Read as any byte-level BPE: ids are bytes.
  const BpeTokenizer bpe(folder / "tokenizer.json", json.dump());
  for (const auto& text : odd_texts()) CHECK(bpe.encode(text) == ByteTokenizer().encode(text));
}

TEST_CASE("characters: ids in the order of code points, a file that gives the same ids, and one line for others") {
  const ScratchFolder folder("characters");
  const std::string text = "b\xC3\xA9 a\n\xF0\x9F\x98\x80\xE4\xBD\xA0\"";
  const OneText corpus(text + text);
  const auto made = make_tokenizer("chars", &corpus);
  CHECK(made->name() == "chars:8");
  CHECK(made->vocab_size() == 8);
  CHECK(made->end_of_text() == -1);
  CHECK(made->encode(text) == std::vector<Token>{4, 5, 1, 3, 0, 7, 6, 2});
  CHECK(made->encode("\n") == made->line_end());
  CHECK(made->decode(made->encode(text)) == text);
  CHECK(make_tokenizer("bytes")->line_end() == std::vector<Token>{'\n'});
  const OneText no_line("xyz");
  CHECK(make_tokenizer("chars", &no_line)->line_end() == std::vector<Token>{0});

  made->save(folder / "tokenizer.json");
  const auto again = make_tokenizer(folder / "tokenizer.json");
  CHECK(again->name() == "chars:8");
  CHECK(again->encode(text) == made->encode(text));
  const auto refused = [&](const std::string& other) { return thrown_by([&] { (void)again->encode(other); }); };
  CHECK(refused("a\xC3\xA8").status == 3);
  CHECK(refused("a\xC3\xA8").text == (folder / "tokenizer.json") +
                                         ": no id for the character \"\xC3\xA8\" (U+00E8) of the text; accepted: the 8 "
                                         "characters of the text from which data.tokenizer = \"chars\" was learned");
  CHECK_THAT(refused("a\x01").text, ContainsSubstring("\"\\x01\" (U+0001)"));
  CHECK_THAT(refused("a\xFF").text, ContainsSubstring("byte 1 of the text, 0xff, is not UTF-8"));
  CHECK(thrown_by([&] { (void)again->decode(std::vector<Token>{8}); }).status == 3);
  CHECK_THAT(thrown_by([] { make_tokenizer("chars"); }).text, ContainsSubstring("is trained on text: give data.text"));

  // Other word vocabularies are not taken for characters.
  const auto json = nlohmann::json::parse(bytes_of(folder / "tokenizer.json"));
  for (const char* change : {R"([{"op": "add", "path": "/model/vocab/ab", "value": 8}])",
                             R"([{"op": "replace", "path": "/model/vocab/a", "value": 9}])",
                             R"([{"op": "replace", "path": "/model/vocab/a", "value": 2}])",
                             R"([{"op": "replace", "path": "/normalizer", "value": {"type": "Lowercase"}}])",
                             R"([{"op": "replace", "path": "/pre_tokenizer", "value": {"type": "Whitespace"}}])",
                             R"([{"op": "remove", "path": "/model/vocab"}])"}) {
    CAPTURE(change);
    const auto path = folder.put("changed.json", json.patch(nlohmann::json::parse(change)).dump());
    const auto error = thrown_by([&] { make_tokenizer(path); });
    CHECK(error.status == 3);
    CHECK(error.text == path +
                            ": model.type = \"WordLevel\": not a tokenizer of single characters as "
                            "data.tokenizer = \"chars\" writes it; accepted are these, and BPE");
  }
}

TEST_CASE("training is repeatable") {
  const ScratchFolder folder("repeat");
  trained(700)->save(folder / "a.json");
  trained(700)->save(folder / "b.json");
  CHECK(bytes_of(folder / "a.json") == bytes_of(folder / "b.json"));
}

TEST_CASE("a tokenizer's spec and files are refused with the accepted set") {
  const ScratchFolder folder("refused");
  for (const char* spec :
       {"byte", "char", "chars:65", "bpe:", "bpe:12", "bpe:4096x", "bpe:-5", "bpe:99999999999", "no/such/file.json"}) {
    const auto error = thrown_by([&] { make_tokenizer(spec); });
    CHECK(error.status == 2);
    CHECK_THAT(error.text, ContainsSubstring(std::string("data.tokenizer = \"") + spec + "\": accepted: \"bytes\""));
  }
  CHECK_THAT(thrown_by([] { make_tokenizer("byte"); }).text, ContainsSubstring("did you mean \"bytes\"?"));
  CHECK_THAT(thrown_by([] { make_tokenizer("char"); }).text, ContainsSubstring("did you mean \"chars\"?"));
  CHECK_THAT(thrown_by([] { make_tokenizer("bpe:4096"); }).text,
             ContainsSubstring("is trained on text: give data.text"));

  const std::vector<std::pair<std::string, std::string>> files = {{"", "not JSON: wrong or cut off at byte 1"},
                                                                  {"[1, 2", "not JSON: wrong or cut off at byte 6"},
                                                                  {"[1, 2]", "no model"},
                                                                  {R"({"model": 3})", "no model"},
                                                                  {R"({"model": {"merges": [7]}})", "no model.vocab"}};
  for (const auto& [bytes, reason] : files) {
    const auto path = folder.put("bad.json", bytes);
    const auto error = thrown_by([&] { make_tokenizer(path); });
    CHECK(error.status == 3);
    CHECK_THAT(error.text, ContainsSubstring(path) && ContainsSubstring(reason));
  }
  CHECK(thrown_by([] { (void)make_tokenizer("bytes")->decode(std::vector<Token>{256}); }).status == 3);
}

TEST_CASE("encoding time grows with the text, not with its square") {
  const ScratchFolder folder("linear");
  const auto learned = trained(1000);
  const BpeTokenizer& bpe = *learned;
  for (const std::string& text : {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '\xFF')}) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(bpe.decode(bpe.encode(text)) == text);
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 5.0);
  }
}

TEST_CASE("encoding speed", "[.speed]") {
  const ScratchFolder folder("speed");
  const auto learned = trained(4000);
  const BpeTokenizer& bpe = *learned;
  const std::string text = words(20'000'000, 5);
  const auto start = std::chrono::steady_clock::now();
  const auto tokens = bpe.encode(text);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << "BPE encode: " << static_cast<double>(text.size()) / seconds / 1e6 << " MB/s, " << tokens.size()
            << " tokens\n";
}

}  // namespace kozero::io
