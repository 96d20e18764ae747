// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_cases.hpp: the cases of a matrix: their decks, identities and plans.
// The identity of a case is the XXH3-128 of its resolved deck without paths, the bytes of its data, tokenizer, tuning
// file, initial weights and adapters, its number of ranks, its repetition, and the bytes of the program.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/distributed/environment.hpp>
#include "io/deck/deck.hpp"
#include "io/deck/matrix_file.hpp"
#include "src/commands/content_hashes.hpp"

namespace kozero::commands {

struct SweepCase {
  std::string identity;            ///< 32 hexadecimal digits
  std::string name;                ///< "zero.stage=0 ranks=2"
  nlohmann::ordered_json values;   ///< {"zero.stage": 0, "ranks": 2}; a table's name, and its keys
  std::int64_t repetition = 1;     ///< from 1
  std::vector<std::string> keys;   ///< overrides of the deck, "zero.stage=0", with run.dir
  std::string folder;              ///< SWEEP/cases/ID, with 12 digits of the identity
  io::Deck deck;                   ///< with these overrides
  std::int64_t planned_bytes = 0;  ///< of arrays per rank
  std::optional<double> step_s;    ///< planned; nullopt on GPUs
  double evaluation_s = 0.0;       ///< planned, of one evaluation

  [[nodiscard]] int ranks() const { return static_cast<int>(deck.run.ranks); }
  /// "zero.stage=0 ranks=2", with the repetition if there are several.
  [[nodiscard]] std::string title(const io::Matrix& matrix) const;
  /// Planned seconds of all steps and evaluations; nullopt if steps or their time are unknown.
  [[nodiscard]] std::optional<double> planned_s() const;
  [[nodiscard]] std::string run_folder() const { return folder + "/run"; }
};

/// All combinations of the axes' values, the first axis slowest, the repetitions slower still. Reads the data once for
/// the identities. Throws Error(deck) or Error(input) naming the case whose deck is refused or whose data cannot be
/// read, and if two cases have one identity.
std::vector<SweepCase> cases_of(const io::Matrix& matrix, ContentHashes& hashes);

/// Throws Error(input) if the data, another file of the case or the program are not those of its identity any more.
/// `hashes`: those of cases_of().
void require_identity(const io::Matrix& matrix, const SweepCase& one, ContentHashes& hashes);

/// The program that computes on the host, as it was named when the sweep began.
std::string host_program();

enum class Only { all, unplanned };

/// Fills in the plans, with this machine's rates. Starts Kokkos for that time.
void plan_cases(std::vector<SweepCase>& cases, const distributed::Environment& environment, Only only);

}  // namespace kozero::commands
