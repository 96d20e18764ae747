// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck_lists.cpp: lists of tables in a deck, [[data.source]]: values, origins, text, and the refusal of each
// mistake.
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

#include "deck_refusals.hpp"
#include "io/deck/schema.hpp"

using namespace kozero::io;

namespace {

/// The good deck without data.text; a list's first line is x.toml:7.
std::string without_text() {
  std::string text = kGoodDeck;
  const auto begin = text.find("data.text");
  return text.erase(begin, text.find('\n', begin) + 1 - begin);
}

Deck with(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return parse_deck(without_text() + lines, "x.toml", overrides);
}

void check_list_refusals(const std::vector<Refusal>& cases) {
  for (const auto& each : cases) CHECK(refusal_of(without_text() + each.lines, each.overrides) == each.message);
}

}  // namespace

TEST_CASE("tables of a list keep their order, have defaults, and read back from the resolved deck") {
  const Deck deck = with("[[data.source]]\ntext = \"a.txt\"\n[[data.source]]\nrepeat = 3\ntext = [\"b\", \"c.txt\"]\n");
  REQUIRE(deck.data.source.size() == 2);
  CHECK(deck.data.source[0].text == std::vector<std::string>{"a.txt"});
  CHECK(deck.data.source[0].repeat == 1);
  CHECK(deck.data.source[1].text == std::vector<std::string>{"b", "c.txt"});
  CHECK(deck.data.source[1].repeat == 3);
  CHECK(deck.origins.at("data.source") == "x.toml:7");
  const std::string value = R"([{text = ["a.txt"], repeat = 1}, {text = ["b", "c.txt"], repeat = 3}])";
  CHECK(text_in(deck, *find_row("data.source")) == value);
  CHECK(resolved_text(deck).find("\nsource = " + value + "  # x.toml:7\n") != std::string::npos);
  CHECK(fingerprint(parse_deck(resolved_text(deck), "deck.toml")) == fingerprint(deck));
  CHECK(first_difference(fingerprint(deck), fingerprint(with("", {"data.source=[{text=\"a.txt\"}]"}))) ==
        "data.source: " + value + R"( and [{text = ["a.txt"], repeat = 1}])");
}

TEST_CASE("a list on the command line replaces the deck's text and its list") {
  const std::vector<std::string> override = {R"(data.source=[{text="c.txt", repeat=2}])"};
  for (const Deck& deck : {with("[[data.source]]\ntext = \"a.txt\"\n[[data.source]]\ntext = \"b.txt\"\n", override),
                           parse_deck(kGoodDeck, "x.toml", override)}) {
    REQUIRE(deck.data.source.size() == 1);
    CHECK(deck.data.source[0].text == std::vector<std::string>{"c.txt"});
    CHECK(deck.data.source[0].repeat == 2);
    CHECK(deck.data.text.empty());
    CHECK(deck.origins.at("data.source") == "command line");
  }
  CHECK(with("[[data.source]]\ntext = \"a.txt\"\n", {"data.text=b.txt"}).data.source.empty());
}

TEST_CASE("a curriculum's tables read back from the resolved deck, and give the deck of each lesson") {
  std::string text = kGoodDeck;
  text.erase(text.find("run.steps"), text.find('\n', text.find("run.steps")) + 1 - text.find("run.steps"));
  text += "[[curriculum]]\nsteps = 100\nfreeze = \"h.0.*\"\n[[curriculum]]\ntokens = 1e6\nlr = 2e-3\nmin_lr = 0\n";
  const Deck deck = parse_deck(text, "x.toml");
  REQUIRE(deck.run.curriculum.size() == 2);
  CHECK(text_in(deck, *find_row("run.curriculum")) ==
        R"([{steps = 100, freeze = ["h.0.*"]}, {tokens = 1000000, lr = 0.002, min_lr = 0.0, freeze = []}])");
  CHECK(fingerprint(parse_deck(resolved_text(deck), "deck.toml")) == fingerprint(deck));
  const Deck first = deck_of_lesson(deck, 0);
  CHECK(first.optim.freeze == std::vector<std::string>{"h.0.*"});
  CHECK(first.optim.lr == deck.optim.lr);
  const Deck second = deck_of_lesson(deck, 1);
  CHECK(second.optim.freeze.empty());
  CHECK(second.optim.lr == 2e-3);
  CHECK(second.origins.at("optim.lr") == "curriculum[1]");
  CHECK(fingerprint(*second.whole) == fingerprint(deck));
  CHECK(parse_deck(kGoodDeck, "x.toml", {"curriculum=[{steps=3}]"}).run.curriculum.size() == 1);
}

TEST_CASE("a mistake in a list is refused with the line, the table's number and what is accepted") {
  const std::string good = "[[data.source]]\ntext = \"a.txt\"\n";
  check_list_refusals({
      {good + "[[data.source]]\ntxt = \"b.txt\"\n",
       {},
       R"(x.toml:10: data.source[1].txt = "b.txt": no such key; accepted in [[data.source]] are text, repeat, filter;)"
       R"( did you mean text?)"},
      {good + "repeat = \"two\"\n", {}, R"(x.toml:9: data.source[0].repeat = "two": accepted: integer 1 to 1000)"},
      {good + "repeat = 0\n", {}, "x.toml:9: data.source[0].repeat = 0: accepted: integer 1 to 1000"},
      {good + "repeat = 1.5\n", {}, "x.toml:9: data.source[0].repeat = 1.5: accepted: integer 1 to 1000"},
      {good + "[[data.source]]\nrepeat = 2\n",
       {},
       "x.toml:9: data.source[1].text: missing; accepted: path of a file or a folder, or a list of these"},
      {"[[data.source]]\ntext = []\n",
       {},
       "x.toml:8: data.source[0].text = []: accepted: path of a file or a folder, or a list of these"},
      {"[data.source]\ntext = \"a.txt\"\n",
       {},
       R"(x.toml:7: data.source = {text = "a.txt"}: accepted: [[data.source]] tables with text, repeat, filter, or)"
       " data.source=[{text = ...}, ...]"},
      {"data.source = [\"a.txt\"]\n",
       {},
       R"(x.toml:7: data.source = ["a.txt"]: accepted: [[data.source]] tables with text, repeat, filter, or)"
       " data.source=[{text = ...}, ...]"},
      {"",
       {"data.source=[]"},
       "command line: data.source = []: accepted: [[data.source]] tables with text, repeat, filter, or "
       "data.source=[{text = "
       "...}, ...]"},
      {"",
       {R"(data.source=[{text="a.txt"}, {text="b.txt", repat=2}])"},
       R"(command line: data.source[1].repat = 2: no such key; accepted in [[data.source]] are text, repeat, filter;)"
       R"( did you mean repeat?)"},
      {good,
       {"model.vocab=100"},
       "command line: model.vocab = 100: data.tokenizer = \"bytes\" has 256 ids; accepted are 256 or more"},
      {good,
       {"data.source[0].repeat=2"},
       "command line: data.source[0].repeat = 2: no such key; data.source is given as a whole, accepted: "
       "[[data.source]] tables with text, repeat, filter, or data.source=[{text = ...}, ...]"},
      {good,
       {"data.tokens=a.bin", "data.source=[{text=\"b.txt\"}]"},
       R"(command line: data.tokens = ["a.bin"]: contradicts data.source = [{text = ["b.txt"], repeat = 1}] (command)"
       R"( line); accepted is one of data.text, data.source, data.tokens, data.synthetic; remove the others)"},
      {"[[data.source]]\ntext = \"a\\u0000b\"\n",
       {},
       "x.toml:7: data.source = [{text = \"a\\u0000b\"}]: it holds a NUL character; accepted: text without one"},
  });
}

TEST_CASE("the columns of a list are documented with their values and defaults; other rows have none") {
  const DeckRow& row = *find_row("data.source");
  CHECK(accepted_values(row) == "[[data.source]] tables with text, repeat, filter, or data.source=[{text = ...}, ...]");
  const auto columns = columns_in_words(row);
  REQUIRE(columns.size() == 3);
  CHECK(columns[0].key == "data.source[].text");
  CHECK(columns[0].accepted == "path of a file or a folder, or a list of these");
  CHECK(columns[0].default_text == "none: each table gives it");
  CHECK(columns[1].key == "data.source[].repeat");
  CHECK(columns[1].accepted == "integer 1 to 1000");
  CHECK(columns[1].default_text == "1");
  CHECK(columns[2].key == "data.source[].filter");
  for (const auto& column : columns) CHECK_FALSE(column.help.empty());
  CHECK(columns_in_words(*find_row("data.text")).empty());
}

TEST_CASE("a key of a list's second table repeats none of the first") {
  const std::string first = "[[data.source]]\ntext = \"a.txt\"\n";
  for (const char* second : {"[[data.source]]\ntext = b\n", "[[data.source]]\nrepeat = \n"}) {
    CHECK(refusal_of(without_text() + first + second, {}).find("twice") == std::string::npos);
  }
  CHECK(refusal_of(without_text() + first + "text = \"b.txt\"\n", {}).find("data.source[0].text: given twice") !=
        std::string::npos);
}
