// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <bit>
#include <iostream>
#include <optional>

#include <kozero/core/error.hpp>
#include "src/commands/arguments.hpp"
#include "src/commands/program.hpp"
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

/// What must be equal in bits under every stage and on any number of ranks.
struct Trace {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::uint64_t> weights;  ///< hashes of the tensors
  std::vector<std::string> tensors;    ///< their names
};

Trace trace_of(Session& session, const io::Deck& deck, const train::DataSet& data, std::int64_t steps) {
  UnsavedRun run(session, deck, data);
  Trace trace;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto result = run.step(step);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
  }
  const ParameterTable& table = run.engine().parameters();
  trace.weights = zero::tensor_hashes(table, run.engine().master());
  for (const auto& row : table.rows()) trace.tensors.push_back(row.name);
  return trace;
}

/// The first thing that differs, "" where nothing does.
std::string difference(const Trace& first, const Trace& other) {
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    if (!same_bits({first.losses[i]}, {other.losses[i]})) return fmt::format("the loss of step {}", i + 1);
    if (!same_bits({first.norms[i]}, {other.norms[i]})) return fmt::format("the gradient norm of step {}", i + 1);
  }
  const auto found = std::ranges::mismatch(first.weights, other.weights).in1 - first.weights.begin();
  if (found == std::ssize(first.weights)) return "";
  return "the final weights of " + first.tensors[static_cast<std::size_t>(found)];
}

std::string row_of(int ranks, int stage, const Trace& trace, const std::string& differs) {
  std::uint64_t hash = 0;
  for (const std::uint64_t one : trace.weights) hash = 31 * hash + one;
  return fmt::format("{:>5}  {:>5}  {:>22.17g}  {:>22.17g}  {:012x}  {}\n", ranks, stage, trace.losses.back(),
                     trace.norms.back(), hash >> 16U, differs.empty() ? "equal" : "DIFFERS in " + differs);
}

/// Those that were asked for, ascending, or all that were started. Throws Error(deck), seen by all ranks.
std::vector<std::int64_t> rank_counts(const VerifyOptions& options, const io::Deck& deck,
                                      const dist::Environment& environment, Session& session,
                                      const Arguments& arguments) {
  std::vector<std::int64_t> counts = options.ranks;
  if (counts.empty()) return {environment.size()};
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  if (counts.back() > environment.size()) {
    throw Error(Failure::deck,
                fmt::format("--ranks: {} ranks are needed and {} started: {}", counts.back(), environment.size(),
                            command_line("verify", arguments, static_cast<int>(counts.back()))),
                Error::Seen::by_all_ranks);
  }
  if (counts.size() > 1 && session.backend() == "nccl") {
    throw Error(
        Failure::deck,
        "--ranks: comm.backend = nccl adds in an order of NCCL's own, so that numbers of ranks differ; accepted "
        "is one number, or comm.backend=mpi or shm",
        Error::Seen::by_all_ranks);
  }
  const bool batch_grows = deck.train.batch_scaling != "none" || deck.train.accumulate > 0;
  if (batch_grows && counts.size() > 1) {
    throw Error(Failure::deck,
                "--ranks: with train.accumulate or train.batch_scaling each number of ranks trains on another batch; "
                "accepted is one number, or train.global_batch in their place",
                Error::Seen::by_all_ranks);
  }
  return counts;
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
  deck.zero.accumulation = "ordered";
  const auto counts = rank_counts(options, deck, environment, session, arguments);
  const train::DataSet data = open_data_of(deck, comm);

  if (environment.rank() == 0) {
    std::cout << fmt::format(
        "{}: {} steps, every bit of losses, gradient norms and the final weights\n\nranks  stage  "
        "{:>22}  {:>22}  {:>12}\n",
        deck.source, steps, "last loss", "last gradient norm", "weights");
  }
  std::optional<Trace> first;
  int different = 0;
  for (const std::int64_t count : counts) {
    const dist::FirstRanks ranks(environment.world(), static_cast<int>(count));
    // What all ranks of the group throw, the others learn here: they would wait in vain.
    dist::agreed(comm, [&] {
      if (!ranks.contain_me()) return;
      Session group(session, ranks);
      for (deck.zero.stage = 0; deck.zero.stage <= 3; ++deck.zero.stage) {
        const Trace trace = trace_of(group, deck, data, steps);
        if (!first) first = trace;
        const std::string differs = difference(*first, trace);
        different += differs.empty() ? 0 : 1;
        if (environment.rank() == 0) {
          std::cout << row_of(static_cast<int>(count), static_cast<int>(deck.zero.stage), trace, differs) << std::flush;
        }
      }
    });
  }
  if (dist::broadcast_value(comm, different) > 0) {
    throw Error(Failure::internal, "they do not agree", Error::Seen::by_all_ranks);
  }
  if (environment.rank() == 0) {
    std::cout << fmt::format("\nall stages agree bit for bit on {} rank{}\n", fmt::join(counts, ", "),
                             counts == std::vector<std::int64_t>{1} ? "" : "s")
              << std::flush;
  }
}

}  // namespace kozero::commands
