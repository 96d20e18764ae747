// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// matrix_file.hpp: the file of a sweep: a deck, keys for all cases, and axes, whose values are combined to cases.
//   [sweep]
//   deck = "quickstart.toml"         # relative to the matrix
//   dir = "runs/stages"              # default: runs/ and the matrix's name
//   name = "stages"                  # default: the matrix's name
//   steps = 100                      # of each case: run.steps; or minutes = 2, run.max_minutes; default: the deck's
//   repetitions = 1
//   timeout_s = 600                  # ends a case that has not ended after so many seconds; default: none
//   [set]
//   optim.lr = 1e-3                  # any key of a deck
//   [axes]
//   zero.stage = [0, 1, 2, 3]        # any key of a deck
//   ranks = [1, 2]                   # run.ranks
//   model = [{name = "small", model.layers = 2, model.dim = 64}, {name = "large", ...}]      # several keys at once
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kozero::io {

inline constexpr const char* kSweepFile = "sweep.json";  ///< in the folder of a sweep

/// Keys of a deck with their values as TOML: {"zero.stage", "2"}.
using DeckKeys = std::vector<std::pair<std::string, std::string>>;

struct AxisValue {
  std::string name;              ///< "2", "local"; of a table its `name`, or its keys
  nlohmann::ordered_json value;  ///< the value as JSON; of a table its name
  nlohmann::ordered_json parts;  ///< of a table: its keys with their values, {"model.layers": 2, "ranks": 4}
  DeckKeys keys;                 ///< what it sets
};

struct Axis {
  std::string key;  ///< "zero.stage", "ranks"; of tables any word: "model"
  std::vector<AxisValue> values;
};

struct Matrix {
  std::string path;
  std::string deck;       ///< its path, from the current directory
  std::string deck_text;  ///< read once, so that all cases are of one deck
  std::string dir;
  std::string name;
  std::int64_t repetitions = 1;
  double timeout_s = 0.0;  ///< of a case; 0: none
  DeckKeys set;            ///< for all cases; [sweep] steps or minutes and the command line's keys are among them
  std::vector<Axis> axes;
};

/// Reads a matrix. Overrides are keys of a deck for all cases, which win over [set], and "sweep.dir=..." and the like.
/// Throws Error(deck), one line with file and line, if the file is no matrix, for an unknown key (with the nearest
/// name), a value that its key does not accept, an empty axis, a key that two places give, or a missing deck.
Matrix read_matrix(const std::string& path, const std::vector<std::string>& overrides = {});

}  // namespace kozero::io
