// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>

#include "bench.hpp"

namespace kozero::commands {
namespace {

/// A new bench is a row here, a line in bench.hpp and a file of its own.
const std::vector<Command>& benches() {
  static const std::vector<Command> kBenches = {
      {"checkpoint", "DECK [section.key=value ...] [--runs N] [--json]", "saving beside plain writing and copying",
       bench_checkpoint},
      {"kernels", "DECK [section.key=value ...] [--runs N] [--json]",
       "every kernel of a step beside the best product and a stream", bench_kernels},
      {"step", "DECK [section.key=value ...] [--runs N] [--json]",
       "where the time of training steps goes, and what is idle", bench_step},
      {"tune", "DECK [section.key=value ...] [--out FILE] [--runs N]",
       "the fastest way for each kind of matrix product, as a file for run.tuning", bench_tune},
      {"collectives", "[--mib LIST] [--runs N] [--json]", "reduce-scatter and all-gather beside MPI's",
       bench_collectives},
  };
  return kBenches;
}

}  // namespace

void bench(const dist::Environment& environment, const Arguments& arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  std::vector<std::string> names;
  std::string accepted;
  for (const auto& one : benches()) {
    if (one.name == name) return one.run(environment, Arguments(arguments.begin() + 1, arguments.end()));
    names.push_back(one.name);
    accepted += "; " + one.name + " " + one.arguments + ": " + one.summary;
  }
  const std::string nearest = nearest_name(name, names.data(), names.data() + names.size());
  throw Error(Failure::deck,
              "bench \"" + name + "\"" + (nearest.empty() ? "" : ": did you mean " + nearest + "?") + " accepted are" +
                  accepted.substr(1),
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::commands
