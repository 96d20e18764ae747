// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench_tune.cpp: the fastest algorithm for each kind of matrix product of a deck's step, as a file for run.tuning.
// In one training step the first product of each kind times all its algorithms (kernels/matmul/product_tuning.hpp).
// Rank 0 writes the file with its results. All ranks then run further steps with the default rule and with the file in
// turn, to measure the gain. Evaluation and generation have other kinds of products, which keep the rule.
#include <fmt/format.h>
#include <chrono>
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/core/timing.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/unsaved_run.hpp>
#include <kozero/train/runtime.hpp>
#include "io/posix/file.hpp"
#include "kernels/matmul/product_tuning.hpp"
#include "src/bench/bench.hpp"

namespace kozero::bench {

using run::open_data_of;
using run::Session;
using run::UnsavedRun;

namespace {

io::Deck read_untuned(const DeckArguments& arguments, distributed::Communicator& comm) {
  io::Deck deck = arguments.read(comm);
  deck.run.tuning = "none";
  return deck;
}

/// The fastest algorithms for the products of the first step.
std::vector<kernels::TunedProduct> tuned_in(UnsavedRun& run, int rounds) {
  kernels::begin_product_tuning(rounds);
  run.step(1);
  auto products = kernels::end_product_tuning();
  if (!products.empty()) return products;
  throw Error(Failure::deck,
              "bench tune: no product of the step has more than one algorithm; accepted is run.products = \"fastest\"",
              Error::Seen::by_all_ranks);
}

/// Rank 0's results, as a tuning file's text.
std::string agreed_file(const std::vector<kernels::TunedProduct>& products, distributed::Communicator& comm) {
  io::TuningFile tuning = train::tuning_of_this_device();
  for (const auto& product : products) tuning.products[product.kind] = product.algorithms[product.kept];
  return comm.broadcast_control(io::tuning_text(tuning));
}

double seconds_of_step(UnsavedRun& run, std::int64_t step, const kernels::ProductAlgorithms& algorithms) {
  kernels::use_product_algorithms(algorithms);
  const auto start = std::chrono::steady_clock::now();
  run.step(step);
  Device().fence("kozero::bench::tune");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Medians of the seconds of whole steps, run in turn.
struct StepSeconds {
  double by_rule, tuned;
};
StepSeconds seconds_of_steps(UnsavedRun& run, const kernels::ProductAlgorithms& algorithms, int rounds) {
  std::vector<double> by_rule, tuned;
  for (int round = 1; round <= rounds; ++round) {
    by_rule.push_back(seconds_of_step(run, 2 * round, {}));
    tuned.push_back(seconds_of_step(run, 2 * round + 1, algorithms));
  }
  return {median(by_rule), median(tuned)};
}

double percent_less(double before, double after) { return 100.0 * (1.0 - after / before); }

void print_table(const std::vector<kernels::TunedProduct>& products, const StepSeconds& steps) {
  std::cout << fmt::format("{:<68}{:>6}{:>6}{:>12}{:>10}{:>8}  {}\n", "kind of product", "calls", "algorithms",
                           "ms by rule", "ms kept", "gain", "kept");
  double by_rule = 0.0;
  double kept = 0.0;
  for (const auto& product : products) {
    const double before = 1e3 * product.seconds.front();
    const double after = 1e3 * product.seconds[product.kept];
    by_rule += before * static_cast<double>(product.calls);
    kept += after * static_cast<double>(product.calls);
    std::cout << fmt::format("{:<68}{:>6}{:>6}{:>12.3f}{:>10.3f}{:>6.1f} %  {}\n", product.kind, product.calls,
                             product.algorithms.size(), before, after, percent_less(before, after),
                             product.kept == 0 ? "the rule's" : product.algorithms[product.kept]);
  }
  std::cout << fmt::format("the products of a step: {:.1f} ms by the rule, {:.1f} ms as kept: {:.1f} % less\n", by_rule,
                           kept, percent_less(by_rule, kept));
  std::cout << fmt::format("a whole step, measured in turn: {:.1f} ms by the rule, {:.1f} ms tuned: {:.1f} % less\n",
                           1e3 * steps.by_rule, 1e3 * steps.tuned, percent_less(steps.by_rule, steps.tuned));
}

}  // namespace

void bench_tune(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("bench tune");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  std::string out = "tuning.toml";
  int rounds = 7;
  parser.add("--out", out, "where the algorithms go, for run.tuning").type_name("FILE");
  parser.add("--runs", rounds, "repetitions; medians are compared").type_name("N").positive();
  parser.parse(arguments);

  Session session(environment, [&](distributed::Communicator& comm) { return read_untuned(deck_arguments, comm); });
  const data::DataSet data = open_data_of(session.deck(), session.control());
  UnsavedRun run(session, session.deck(), data);
  warm_up_device();
  const auto products = tuned_in(run, rounds);
  const std::string text = agreed_file(products, session.control());
  const kernels::ProductAlgorithms algorithms = io::parse_tuning(text, out).products;
  const StepSeconds seconds = seconds_of_steps(run, algorithms, rounds);
  distributed::agreed(session.control(), [&] {
    if (session.is_first_rank()) io::write_whole_file(out, text);
  });
  if (!session.is_first_rank()) return;
  print_table(products, seconds);
  std::cout << fmt::format("{}: {} kinds; run.tuning={} goes by it, on this device and library alone\n", out,
                           algorithms.size(), out);
}

}  // namespace kozero::bench
