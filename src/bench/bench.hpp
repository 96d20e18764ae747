// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench.hpp: the benchmarks of the program kozero-bench, which `kozero bench NAME` starts, and the arguments of those
// with a deck.
//   DECK [section.key=value ...] [--runs N] [--json]
// Each benchmark measures a plain reference in the same run.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/distributed/environment.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/program/command.hpp>

namespace kozero::bench {

using program::Arguments;
using program::DeckArguments;
using program::JsonOutput;
using program::OptionParser;

inline constexpr std::int64_t kFirstSteps = 2;  ///< of a run: not measured, since they create what is created once

/// Keeps a GPU busy for two seconds, since an idle one begins with a low clock (H200: 0.35 GHz, later 1.98).
void warm_up_device();

/// Runs "NAME ARGUMENT..." or "bench NAME ARGUMENT...". Throws Error(deck) with the nearest name for an unknown one.
void run(const distributed::Environment& environment, const Arguments& arguments);

/// The time to save a checkpoint, beside a plain write, and its stall, beside a plain copy of as many bytes.
void bench_checkpoint(const distributed::Environment& environment, const Arguments& arguments);

/// Every kernel of a step at a deck's shapes: time, operations or bytes per second, share of the best product or
/// stream.
void bench_kernels(const distributed::Environment& environment, const Arguments& arguments);

/// Training steps of a deck: time by kernel, and the share of time in which no kernel runs.
void bench_step(const distributed::Environment& environment, const Arguments& arguments);

/// Training steps of a deck under each ZeRO stage: time, memory, bytes, communication, and whether all bits are equal.
void bench_stages(const distributed::Environment& environment, const Arguments& arguments);

/// Every algorithm for each kind of matrix product of a step; the fastest go to a file for run.tuning.
void bench_tune(const distributed::Environment& environment, const Arguments& arguments);

/// Reduce-scatter and all-gather of each back end beside MPI's own collectives.
void bench_collectives(const distributed::Environment& environment, const Arguments& arguments);

/// "DECK [section.key=value ...] [--runs N] [--json]".
struct BenchArguments {
  DeckArguments deck;
  int runs = 0;
  JsonOutput json;

  /// Arguments of `kozero bench <name>`. `usual_runs`: the default of --runs. Throws like parse().
  BenchArguments(const std::string& name, int usual_runs, const Arguments& arguments) : runs(usual_runs) {
    OptionParser parser("bench " + name);
    deck.add_to(parser);
    parser.add("--runs", runs, "repetitions; medians are printed").type_name("N").positive();
    json.add_to(parser);
    parser.parse(arguments);
  }
};

}  // namespace kozero::bench
