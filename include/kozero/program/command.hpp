// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// command.hpp: the table of commands, for --help, completion, and decisions made before a command runs.
#pragma once
#include <string>
#include <vector>

namespace kozero::program {

using Arguments = std::vector<std::string>;

struct Command {
  std::string name;
  std::string arguments;   ///< "DECK [section.key=value ...]", without its options
  std::string summary;     ///< for the list of commands; "": not listed
  std::string example;     ///< arguments after "kozero "
  bool computes = false;   ///< on run.device
  std::string words = {};  ///< completions of bench and benchmarks; "KEYS": overrides; "": from --help
  bool alone = false;      ///< needs no other rank, so MPI is not started
};

/// All commands, in the order of the help text. Their functions are in src/commands/commands.cpp.
const std::vector<Command>& all_commands();

/// The benchmarks of the program kozero-bench, named "bench kernels". Their functions are in src/bench/bench.cpp.
const std::vector<Command>& benchmarks();

/// The row of all_commands() or benchmarks(). Throws Error(deck) with the nearest name for an unknown one.
const Command& command_named(const std::string& name);

/// Whether MPI is started for these arguments: not for help, an unknown command, or one that is `alone`.
bool needs_mpi(const Arguments& arguments);

}  // namespace kozero::program
