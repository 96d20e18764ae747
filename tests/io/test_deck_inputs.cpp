// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck_inputs.cpp: the decks of inputs/ are valid, and the texts that they train on have not changed.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/deck/deck.hpp"
#include "io/deck/matrix_file.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/block_hashes.hpp"

namespace {

using namespace kozero::io;
namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The files of inputs/ that are matrices of sweeps, or those that are decks.
std::vector<std::string> shipped(bool matrices) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(KOZERO_INPUTS)) {
    if (entry.path().extension() != ".toml") continue;
    const bool is_matrix = text_of(entry.path().string()).find("\n[sweep]\n") != std::string::npos;
    if (is_matrix == matrices) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("every shipped deck is good, and its resolved form is the same deck") {
  const auto paths = shipped(false);
  CHECK(paths.size() >= 10);
  for (const auto& path : paths) {
    INFO(path);
    const Deck deck = read_deck(path);
    CHECK(fingerprint(parse_deck(resolved_text(deck), "deck.toml")) == fingerprint(deck));
  }
}

TEST_CASE("every shipped matrix is good, and each of its values gives a good deck") {
  const auto paths = shipped(true);
  CHECK(paths.size() == 5);
  for (const auto& path : paths) {
    INFO(path);
    const Matrix matrix = read_matrix(path);
    REQUIRE_FALSE(matrix.axes.empty());
    for (const auto& axis : matrix.axes) {
      for (const auto& value : axis.values) {
        std::vector<std::string> overrides;
        for (const auto* keys : {&matrix.set, &value.keys}) {
          for (const auto& [key, text] : *keys) overrides.push_back(key + "=" + text);
        }
        const Deck deck = read_deck(matrix.deck, overrides);
        for (const auto& [key, text] : value.keys) CHECK(deck.origins.at(key) == "command line");
      }
    }
  }
}

TEST_CASE("all_keys.toml gives the default of every key but those that a deck must give") {
  const Deck deck = read_deck(std::string(KOZERO_INPUTS) + "/all_keys.toml");
  const std::vector<std::string> examples = {"run.steps", "model.preset", "data.text", "train.global_batch"};
  for (const auto& row : deck_schema()) {
    INFO(row.key);
    const bool is_example = std::count(examples.begin(), examples.end(), row.key) == 1;
    CHECK(holds_default(deck, row) != (is_example || row.key == "run.dir"));
    CHECK(deck.is_set(row.key) == (is_example || (row.default_text.empty() && !is_of_shape(row.key))));
  }
}

TEST_CASE("the texts of inputs/ are those that published losses belong to") {
  const std::string folder = std::string(KOZERO_INPUTS) + "/text/";
  CHECK(xxh3_128(text_of(folder + "persuasion.txt")) == "4d9d77f9278da79c1b31d51db3b9711d");
  CHECK(xxh3_128(text_of(folder + "alice.txt")) == "cd7e273494d2ac5673264058ccc2d18b");
}
