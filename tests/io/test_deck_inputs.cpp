// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck_inputs.cpp: the decks of inputs/ are valid, and each key is explained in one of them.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "io/deck/deck.hpp"
#include "io/deck/schema.hpp"

namespace {

using namespace kozero::io;
namespace fs = std::filesystem;

std::vector<std::string> shipped_decks() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(KOZERO_INPUTS)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("every shipped deck is good, and its resolved form is the same deck") {
  const auto paths = shipped_decks();
  CHECK(paths.size() >= 9);
  for (const auto& path : paths) {
    INFO(path);
    const Deck deck = read_deck(path);
    CHECK(fingerprint(parse_deck(resolved_text(deck), "deck.toml")) == fingerprint(deck));
  }
}

TEST_CASE("the stage decks differ in the stage and the run's folder alone") {
  const std::string folder = std::string(KOZERO_INPUTS) + "/stage";
  const std::string stage0 = fingerprint(read_deck(folder + "0.toml", {"run.dir=x"}));
  for (const std::string stage : {"1", "2", "3"}) {
    const Deck deck = read_deck(folder + stage + ".toml", {"run.dir=x"});
    CHECK(std::to_string(deck.zero.stage) == stage);
    CHECK(fingerprint(read_deck(folder + stage + ".toml", {"run.dir=x", "zero.stage=0"})) == stage0);
  }
}

TEST_CASE("every key stands in a shipped deck") {
  std::string all;
  for (const auto& path : shipped_decks()) all += text_of(path);
  for (const auto& row : deck_schema()) {
    INFO(row.key);
    CHECK(std::regex_search(all, std::regex("(^|[\n ])" + name_of(row.key) + " = ")));
  }
}
