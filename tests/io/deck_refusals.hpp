// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_refusals.hpp: a table of bad decks, each with its one-line error.
// A case adds its lines after the 7 lines of a good deck, so its first line is x.toml:8.
#pragma once
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/deck/deck.hpp"

struct Refusal {
  std::string lines;
  std::vector<std::string> overrides;
  std::string message;
};

inline const std::string kGoodDeck = R"(run.steps = 10
model.layers = 2
model.dim = 64
model.heads = 4
model.seq = 32
data.text = ["a.txt"]
train.global_batch = 8
)";

/// The error of parse_deck for a text; "" if the text is accepted.
inline std::string refusal_of(const std::string& text, const std::vector<std::string>& overrides) {
  try {
    kozero::io::parse_deck(text, "x.toml", overrides);
  } catch (const kozero::Error& error) {
    CHECK(error.failure() == kozero::Failure::deck);
    return error.what();
  }
  return "";
}

inline void check_refusals(const std::vector<Refusal>& cases) {
  for (const auto& each : cases) CHECK(refusal_of(kGoodDeck + each.lines, each.overrides) == each.message);
}
