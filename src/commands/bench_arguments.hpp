// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_arguments.hpp: "DECK [section.key=value ...] [--runs N] [--json]": what a bench of a deck is told.
#pragma once
#include <string>

#include "deck_arguments.hpp"

namespace kozero::commands {

struct BenchArguments {
  DeckArguments deck;
  int runs = 0;
  JsonOutput json;

  /// Of `kozero bench <name>`; `usual_runs` where --runs is not given. Throws as parse() does.
  BenchArguments(const std::string& name, int usual_runs, const Arguments& arguments) : runs(usual_runs) {
    CLI::App app("", "bench " + name);
    deck.add_to(app);
    app.add_option("--runs", runs, "repetitions; medians are printed")->type_name("N")->check(CLI::PositiveNumber);
    json.add_to(app);
    parse(app, arguments);
  }
};

}  // namespace kozero::commands
