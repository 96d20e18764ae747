// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_choices.cpp: rows of multiple-choice items, the tokens of endings, and the choice among them.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/choices.hpp>

#include <support/thrown.hpp>

using namespace kozero;
using data::choice_of;
using data::choice_tokens;
using data::parse_choices;

namespace {

std::string refusal(const std::string& text) {
  return tests::thrown_by([&] { static_cast<void>(parse_choices(text, "a.jsonl")); }).text;
}

std::vector<Token> bytes(const std::string& text) { return io::ByteTokenizer().encode(text); }

const std::string kGood = R"({"context": "c", "endings": ["x", "y"], "label": 1})";

}  // namespace

TEST_CASE("rows have HellaSwag's names or neutral ones, and labels as numbers or text") {
  const auto items = parse_choices(
      kGood + "\n \n" + R"({"ctx": "", "endings": ["x", "y", "z"], "label": "2", "ind": 4, "ctx_a": 1})" + "\r\n", "a");
  REQUIRE(items.size() == 2);
  CHECK(items[0].context == "c");
  CHECK(items[0].label == 1U);
  CHECK(items[1].line == 3);
  CHECK(items[1].endings == std::vector<std::string>{"x", "y", "z"});
  CHECK(items[1].label == 2U);
  for (const std::string none : {R"(, "label": null)", R"(, "label": "")", ""}) {
    CHECK_FALSE(parse_choices(R"({"ctx": "c", "endings": ["x", "y"])" + none + "}", "a").front().label);
  }
}

TEST_CASE("a bad row is named with its line, and further bad rows are counted") {
  CHECK(refusal("") == "a.jsonl: no rows");
  CHECK(refusal("\n[1]") == "a.jsonl:2: not a JSON object");
  CHECK(refusal(kGood + "\n{\"a\": ") == "a.jsonl:2: not JSON from byte 7 of the row on");
  CHECK(refusal(R"({"ctx": "c", "ctx": "d", "endings": ["x", "y"]})") == "a.jsonl:1: the key \"ctx\" twice");
  CHECK(refusal(R"({"ctx": NaN})") == "a.jsonl:1: NaN at byte 9 of the row is not JSON; null is");
  CHECK(refusal(R"({"endings": ["x", "y"]})") == "a.jsonl:1: no \"context\" or \"ctx\"");
  CHECK(refusal(R"({"ctx": 3, "endings": ["x", "y"]})") == "a.jsonl:1: \"ctx\" is a JSON number, not text");
  CHECK(refusal(R"({"ctx": "c"})") == "a.jsonl:1: no \"endings\"");
  CHECK(refusal(R"({"ctx": "c", "endings": ["x"]})") == "a.jsonl:1: \"endings\" is not a list of two or more texts");
  CHECK(refusal(R"({"ctx": "c", "endings": ["x", ""]})") == "a.jsonl:1: endings[1] is empty");
  CHECK(refusal(R"({"ctx": "c", "endings": ["x", null]})") == "a.jsonl:1: endings[1] is a JSON null, not text");
  for (const std::string label : {"2", "-1", "\"b\"", "true", "0.5"}) {
    CHECK(refusal(R"({"ctx": "c", "endings": ["x", "y"], "label": )" + label + "}") ==
          "a.jsonl:1: \"label\" is " + label + "; accepted: 0 to 1, the number of an ending");
  }
  const std::string unlabeled = R"({"ctx": "c", "endings": ["x", "y"]})";
  CHECK(refusal(kGood + "\n" + unlabeled) == "a.jsonl:2: no label, and line 1 has one");
  CHECK(refusal(unlabeled + "\n" + kGood) == "a.jsonl:2: a label, and line 1 has none");
  CHECK(refusal("1\n" + kGood + "\n2\n3\n") == "a.jsonl:1: not a JSON object; 2 more bad rows: 3, 4");
}

TEST_CASE("white space at a context's end belongs to the ending, which follows a blank") {
  const io::ByteTokenizer tokenizer;
  for (const std::string context : {"ab", "ab ", "ab \n\t", "ab\u3000"}) {
    const auto scored = choice_tokens(context, "cd", tokenizer, 100);
    CHECK(scored.tokens == bytes(context + " cd"));
    CHECK(scored.scored == std::ssize(context) - 2 + 3);
  }
  const auto no_context = choice_tokens("", "cd", tokenizer, 100);
  CHECK(no_context.tokens == bytes(std::string("\0 cd", 4)));
  CHECK(no_context.scored == 3);
}

TEST_CASE("the model sees the last tokens, and an ending that does not fit is refused") {
  const io::ByteTokenizer tokenizer;
  const auto scored = choice_tokens("abcdef", "gh", tokenizer, 5);
  CHECK(scored.tokens == bytes("def gh"));
  CHECK(scored.scored == 3);
  CHECK(choice_tokens("abcdef", "gh", tokenizer, 3).tokens == bytes("f gh"));
  CHECK(tests::thrown_by([&] { static_cast<void>(choice_tokens("abcdef", "gh", tokenizer, 2)); }).text ==
        "an ending has 3 tokens, more than the 2 positions of the model");
}

TEST_CASE("the choices are those of the largest sum and of the largest per character, the first of equals") {
  const data::ChoiceItem item{.context = "", .endings = {"abc", "\u00e9\u00e9", "abcd"}};
  const auto choice = choice_of(item, std::vector<double>{-4.5, -3.0, -4.0});
  CHECK(choice.by_sum == 1);
  CHECK(choice.by_character == 2);  // -1.5, -1.5, -1; -1.5, -0.75, -1 per byte
  CHECK(choice_of(item, std::vector<double>{-3.0, -3.0, -5.0}).by_sum == 0);
}
