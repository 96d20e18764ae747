// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <iostream>

#include <kozero/core/error.hpp>
#include "src/commands/arguments.hpp"
#include "src/commands/unsaved_run.hpp"

namespace kozero::commands {
namespace {

/// A NaN equals itself, and 0 is not -0.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

/// What must be equal in bits under every stage.
struct Trace {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::uint64_t> weight_hashes;  ///< by rank, of its shards
  bool operator==(const Trace& other) const {
    return same_bits(losses, other.losses) && same_bits(norms, other.norms) && weight_hashes == other.weight_hashes;
  }
};

Trace run_stage(Session& session, const io::Deck& deck, const train::DataSet& data, std::int64_t steps) {
  UnsavedRun run(session, deck, data);
  Trace trace;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto result = run.step(step);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
  }
  trace.weight_hashes = dist::from_all_ranks(run.comm(), zero::hash_of_my_shards(run.engine().master()));
  return trace;
}

std::string row_of(int stage, const Trace& trace, bool equal) {
  std::uint64_t hash = 0;
  for (const std::uint64_t one : trace.weight_hashes) hash = 31 * hash + one;
  return fmt::format("{:>5}  {:>22.17g}  {:>22.17g}  {:012x}  {}\n", stage, trace.losses.back(), trace.norms.back(),
                     hash >> 16U, equal ? "equal" : "DIFFERS");
}

}  // namespace

void verify(const dist::Environment& environment, const Arguments& arguments) {
  OptionParser parser("verify");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  VerifyOptions options;
  options.add_to(parser);
  parser.parse(arguments);
  if (options.replayed > 0) {
    return replay(environment, deck_arguments.path, deck_arguments.overrides, options.replayed);
  }
  const std::int64_t steps = options.steps;

  Session session(environment, [&](dist::Communicator& early) { return deck_arguments.read(early); });
  dist::Communicator& comm = session.control();
  io::Deck deck = session.deck();
  deck.zero.accumulation = "reduced";
  const train::DataSet data = open_data_of(deck, comm);

  Trace first;
  bool all_equal = true;
  if (environment.rank() == 0) {
    std::cout << fmt::format(
        "{} on {} {}, {} steps with zero.accumulation = \"reduced\", every bit of {} losses, norms and the final "
        "weights\n\nstage  {:>22}  {:>22}  {:>12}\n",
        deck.source, comm.size(), comm.size() == 1 ? "rank" : "ranks", steps, steps, "last loss", "last gradient norm",
        "weights");
  }
  for (int stage = 0; stage <= 3; ++stage) {
    deck.zero.stage = stage;
    const Trace trace = run_stage(session, deck, data, steps);
    if (stage == 0) first = trace;
    all_equal = all_equal && trace == first;
    if (environment.rank() == 0) std::cout << row_of(stage, trace, trace == first) << std::flush;
  }
  if (!all_equal) throw Error(Failure::internal, "the stages do not agree", Error::Seen::by_all_ranks);
  if (environment.rank() == 0) std::cout << "\nall stages agree bit for bit" << std::endl;
}

}  // namespace kozero::commands
