// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include "io/deck/schema.hpp"
#include "src/bench/bench.hpp"
#include "src/commands/arguments.hpp"

namespace kozero::commands {

/// A new bench is a row here, a line in bench.hpp and a file of its own.
const std::vector<Command>& benches() {
  static const std::vector<Command> kBenches = {
      {"bench checkpoint", "DECK [section.key=value ...]", "saving beside plain writing and copying",
       "bench checkpoint inputs/synthetic.toml", bench_checkpoint},
      {"bench kernels", "DECK [section.key=value ...]", "every kernel of a step beside the best product and a stream",
       "bench kernels inputs/gpt2_124m.toml --runs 3", bench_kernels},
      {"bench step", "DECK [section.key=value ...]", "where the time of training steps goes, and what is idle",
       "bench step inputs/quickstart.toml", bench_step},
      {"bench tune", "DECK [section.key=value ...]",
       "the fastest algorithm of each matrix product, as a file for run.tuning",
       "bench tune inputs/gpt2_124m.toml --out tuning.toml", bench_tune},
      {"bench collectives", "", "reduce-scatter and all-gather beside MPI's", "bench collectives --mib 16,64",
       bench_collectives},
  };
  return kBenches;
}

void bench(const dist::Environment& environment, const Arguments& arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  std::vector<std::string> names;
  std::string accepted;
  for (const auto& one : benches()) {
    names.push_back(one.name.substr(one.name.find(' ') + 1));
    if (names.back() == name) return one.run(environment, Arguments(arguments.begin() + 1, arguments.end()));
    accepted += "  " + names.back() + ": " + one.summary + "\n";
  }
  if (asks_for_help(name)) {
    throw HelpAsked{"usage: kozero bench NAME ARGUMENT...   (its options: kozero bench NAME --help)\n\n" + accepted +
                        "\n" + exit_statuses(),
                    names};
  }
  const std::string nearest = nearest_name(name, names.data(), names.data() + names.size());
  throw Error(Failure::deck,
              "bench \"" + name + "\": " + (nearest.empty() ? "" : "did you mean " + nearest + "? ") + "accepted are " +
                  io::joined(names),
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::commands
