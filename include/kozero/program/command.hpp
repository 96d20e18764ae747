// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// command.hpp: the table of commands: for --help, for completion, and for what is decided before a command runs.
#pragma once
#include <string>
#include <vector>

namespace kozero::program {

using Arguments = std::vector<std::string>;

struct Command {
  std::string name;
  std::string arguments;   ///< "DECK [section.key=value ...]", without its options
  std::string summary;     ///< for the list of commands; "": not in it
  std::string example;     ///< behind "kozero "
  bool computes = false;   ///< on run.device
  std::string words = {};  ///< what a shell completes, of bench and benchmarks; "KEYS": overrides. Others are asked
  bool alone = false;      ///< asks no other rank, so MPI is not started for it
};

/// All commands, in the order of the help text. Their functions are in src/commands/commands.cpp.
const std::vector<Command>& all_commands();

/// What the program kozero-bench runs, named "bench kernels". Their functions are in src/bench/bench.cpp.
const std::vector<Command>& benchmarks();

/// Of all_commands() or benchmarks(). Throws Error(deck) with the nearest name for an unknown one.
const Command& command_named(const std::string& name);

/// Whether MPI is started for these arguments: not for help, an unknown command, or one that is `alone`.
bool needs_mpi(const Arguments& arguments);

}  // namespace kozero::program
