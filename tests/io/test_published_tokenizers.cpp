// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_published_tokenizers.cpp: ids of published tokenizers, and files that are refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>

#include <nlohmann/json.hpp>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/posix/readable.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

using namespace tests;

using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace {

const std::string kFolder = KOZERO_TOKENIZERS;

/// Decoded bytes as Hugging Face shows them: U+FFFD for each maximal subpart of an ill-formed character.
std::string shown(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t valid = utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(1);
  }
  return text;
}

Json small_json() { return Json::parse(bytes_of(kFolder + "/llama3.json")); }

/// The error message for a changed file, which must be one line with the file's name.
std::string refusal(const ScratchFolder& folder, const std::string& bytes) {
  const auto path = folder.put("changed.json", bytes);
  const auto error = thrown_by([&] { make_tokenizer(path); });
  CHECK(error.status == 3);
  CHECK(error.text.starts_with(path));
  CHECK(error.text.find('\n') == std::string::npos);
  return error.text;
}

}  // namespace

TEST_CASE("published tokenizers give the ids and texts of the originals") {
  const auto expected = Json::parse(bytes_of(kFolder + "/expected.json"));
  REQUIRE(expected.size() == 7);
  for (const auto& [name, cases] : expected.items()) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    for (const auto& one : cases) {
      CAPTURE(name, one["text"].dump());
      const auto ids = one["ids"].get<std::vector<Token>>();
      CHECK(tokenizer->encode(one["text"].get<std::string>()) == ids);
      CHECK(shown(tokenizer->decode(ids)) == one["decoded"].get<std::string>());
    }
  }
}

TEST_CASE("what is not UTF-8 is kept by byte-level BPE, and marked by SentencePiece") {
  const std::string noise = "ok\xFF\xFE na\xC3\xAFve\xC3 <\x80|endoftext|> \xED\xA0\x80" + std::string("\0x", 2);
  for (const char* name : {"gpt2.json", "llama3.json", "qwen.json", "o200k.json"}) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    CHECK(tokenizer->decode(tokenizer->encode(noise)) == noise);
  }
  const auto prefix = make_tokenizer(kFolder + "/prefix.json");
  CHECK(prefix->decode(prefix->encode(noise)) == " " + noise);
  CHECK(prefix->decode(prefix->encode_rest(noise)) == noise);
  const auto model = make_tokenizer(kFolder + "/bpe.model");
  CHECK(model->decode(model->encode("a\xFF"
                                    "b")) ==
        "a\xEF\xBF\xBD"
        "b");
}

TEST_CASE("a document begins with the token that the original puts before a text") {
  const auto begins = [](const std::string& name) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    return tokenizer->decode(std::vector<Token>{tokenizer->end_of_text()});
  };
  CHECK(begins("gpt2.json") == "<|endoftext|>");
  CHECK(begins("qwen.json") == "<|endoftext|>");
  CHECK(begins("llama3.json") == "<|begin_of_text|>");
  CHECK(make_tokenizer(kFolder + "/bpe.model")->end_of_text() == 1);
}

TEST_CASE("text that goes on has the tokens that it has inside its document") {
  const std::string text = "The cat sat, then\nthe other  things were there.\tIt is 1234 said";
  for (const char* name :
       {"gpt2.json", "llama3.json", "qwen.json", "o200k.json", "prefix.json", "bpe.model", "unigram.model"}) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    const auto whole = tokenizer->encode(text);
    for (const std::size_t cut : {text.find(" sat"), text.find("\nthe"), text.find("  things"), text.find(" 1234")}) {
      CAPTURE(name, cut);
      auto parts = tokenizer->encode(text.substr(0, cut));
      const auto rest = tokenizer->encode_rest(text.substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      CHECK(parts == whole);
    }
  }
}

TEST_CASE("a published tokenizer is saved as it came") {
  const ScratchFolder folder("published");
  for (const char* name : {"qwen.json", "unigram.model"}) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    tokenizer->save(folder / tokenizer->file_name());
    CHECK(bytes_of(folder / tokenizer->file_name()) == bytes_of(kFolder + "/" + name));
  }
}

TEST_CASE("what a tokenizer.json asks for and is not supported is refused by name") {
  const ScratchFolder folder("unsupported");
  const std::vector<std::pair<std::function<void(Json&)>, std::string>> changes = {
      {[](Json& j) { j["model"]["type"] = "WordPiece"; }, "model.type = \"WordPiece\" is not supported"},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout = 0.1"},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix = \"</w>\""},
      {[](Json& j) {
         j["truncation"] = {{"max_length", 4}};
       },
       "truncation = {\"max_length\":4}"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       "normalizer {\"type\":\"Lowercase\"} is not supported; NFC is"},
      {[](Json& j) { j["normalizer"] = 3; }, "normalizer = 3"},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       "pre_tokenizer {\"type\":\"Whitespace\"}"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"] = 3; }, "a Sequence without pretokenizers"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       "a Split with behavior \"Removed\""},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+b"; },
       "the Split pattern {\"Regex\":\"(a+)+b\"} is not supported; those of GPT-2, Llama 3, Qwen 2 and 3, o200k are"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
       "add_prefix_space after another"},
      {[](Json& j) { j["decoder"] = nullptr; }, "decoder null is not supported"},
      {[](Json& j) { j["added_tokens"][0]["lstrip"] = true; },
       "added token \"<|begin_of_text|>\": lstrip is not supported"}};
  for (const auto& [change, reason] : changes) {
    Json json = small_json();
    change(json);
    CHECK_THAT(refusal(folder, json.dump()), ContainsSubstring(reason));
  }
}

TEST_CASE("a malformed tokenizer.json is refused in one line") {
  const ScratchFolder folder("malformed");
  const std::vector<std::pair<std::function<void(Json&)>, std::string>> changes = {
      {[](Json& j) { j["model"].erase("merges"); }, "no model.merges"},
      {[](Json& j) { j["model"]["vocab"] = 5; }, "no model.vocab"},
      {[](Json& j) { j["model"]["vocab"].erase("A"); }, "model.vocab has no token \"A\", byte 65"},
      {[](Json& j) { j["model"]["vocab"]["A"] = 4'000'000'000U; },
       "token \"A\": its id is not a number from 0 to 1048575"},
      {[](Json& j) { j["model"]["vocab"]["A"] = -1; }, "token \"A\": its id"},
      {[](Json& j) { j["model"]["vocab"]["A"] = j["model"]["vocab"]["B"]; }, "is given to \"A\" and \"B\""},
      {[](Json& j) { j["model"]["vocab"][""] = 900; }, "id 900 has an empty token"},
      {[](Json& j) { j["model"]["merges"][3] = 7; }, "merge 7 is not \"left right\""},
      {[](Json& j) { j["model"]["merges"][3] = "a"; }, "merge \"a\" is not"},
      {[](Json& j) { j["model"]["merges"][3] = "a b c"; }, "merge \"a b c\" is not"},
      {[](Json& j) {
         j["model"]["merges"][3] = Json::array({"", "a"});
       },
       "merge [\"\",\"a\"] is not"},
      {[](Json& j) { j["model"]["merges"][3] = "a qqq"; }, "\"qqq\" is not in model.vocab"},
      {[](Json& j) { j["model"]["merges"][3] = "Q Q"; }, "\"QQ\" is not in model.vocab"},
      {[](Json& j) { j["model"]["merges"][3] = j["model"]["merges"][4]; }, "stands twice"},
      {[](Json& j) { j["added_tokens"] = "all"; }, "added_tokens is not a list"},
      {[](Json& j) { j["added_tokens"][0]["id"] = "7"; }, "has no content or no id"},
      {[](Json& j) { j["added_tokens"][0]["content"] = "A"; }, "has two ids"},
      {[](Json& j) { j["added_tokens"][0]["normalized"] = "no"; }, "normalized = \"no\" is neither true nor false"}};
  for (const auto& [change, reason] : changes) {
    Json json = small_json();
    change(json);
    CHECK_THAT(refusal(folder, json.dump()), ContainsSubstring(reason));
  }
  CHECK_THAT(refusal(folder, "{\"model\": " + std::string(1 << 20, '[')),
             ContainsSubstring("nested more than 32 deep"));
}

TEST_CASE("a megabyte of one letter is encoded in good time by every kind") {
  for (const char* name : {"gpt2.json", "llama3.json", "qwen.json", "o200k.json", "bpe.model", "unigram.model"}) {
    const auto tokenizer = make_tokenizer(kFolder + "/" + name);
    for (const char letter : std::string(tokenizer->file_name() == "tokenizer.json" ? "a A\n!" : "a")) {
      CAPTURE(name, letter);
      const auto start = std::chrono::steady_clock::now();
      CHECK(!tokenizer->encode(std::string(1 << 20, letter)).empty());
      CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10.0);
    }
  }
}

TEST_CASE("encoding speed of KOZERO_SPEED_TOKENIZER on KOZERO_SPEED_TEXT", "[.speed]") {
  const char* file = std::getenv("KOZERO_SPEED_TOKENIZER");
  const char* text_file = std::getenv("KOZERO_SPEED_TEXT");
  REQUIRE((file != nullptr && text_file != nullptr));
  const auto tokenizer = make_tokenizer(file);
  const std::string text = bytes_of(text_file);
  std::size_t tokens = 0;
  const std::clock_t start = std::clock();
  for (std::size_t at = 0; at < text.size(); at += 1 << 16)
    tokens += tokenizer->encode(text.substr(at, 1 << 16)).size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::cout << tokenizer->name() << ": " << static_cast<double>(text.size()) / seconds / 1e6 << " MB/s, " << tokens
            << " tokens\n";
}

}  // namespace kozero::io
