// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// command.hpp: what `kozero NAME ARGUMENTS` runs, one function a name.
#pragma once
#include <string>
#include <vector>

#include <kozero/dist/environment.hpp>

namespace kozero::commands {

using Arguments = std::vector<std::string>;

struct Command {
  std::string name;
  std::string arguments;  ///< "DECK [section.key=value ...]", without its options
  std::string summary;    ///< for the list of commands; "": not in it
  std::string example;    ///< behind "kozero "
  /// Runs on every rank of the environment. Throws Error.
  void (*run)(const dist::Environment& environment, const Arguments& arguments);
  bool computes = false;  ///< on run.device
};

/// All commands, in the order of the help text.
const std::vector<Command>& all_commands();

/// Of all_commands(), or a bench as "bench kernels". Throws Error(deck) with the nearest name for an unknown one.
const Command& command_named(const std::string& name);

/// Replaces this process by kozero-cuda, with the same arguments, where the command computes and its deck and the
/// machine want it (src/commands/program.hpp); returns where this program is the one to run. `argv` ends in a
/// null.
void hand_over(char** argv);

/// comm.timeout_s as the arguments or the deck that they name say it, before MPI is up; the default where they do not.
double timeout_asked(char** argv);
/// From now on a stop signal does not kill a `train` of these arguments: it is answered
/// (src/commands/stop_signals.hpp).
void await_stop_signals(const Arguments& arguments);

/// Where the arguments are `--version`: prints the program's version, commit and libraries, needing no MPI, and returns
/// true.
bool say_version(const Arguments& arguments);

/// Finds and runs the command that arguments[0] names. Throws Error(deck) with the nearest name for an unknown one.
void run_command(const dist::Environment& environment, const Arguments& arguments);

void train(const dist::Environment& environment, const Arguments& arguments);
void verify(const dist::Environment& environment, const Arguments& arguments);
void plan(const dist::Environment& environment, const Arguments& arguments);
void eval(const dist::Environment& environment, const Arguments& arguments);
void generate(const dist::Environment& environment, const Arguments& arguments);
void inspect(const dist::Environment& environment, const Arguments& arguments);
void prepare(const dist::Environment& environment, const Arguments& arguments);
void export_weights(const dist::Environment& environment, const Arguments& arguments);
void import_weights(const dist::Environment& environment, const Arguments& arguments);
void bench(const dist::Environment& environment, const Arguments& arguments);
void plot(const dist::Environment& environment, const Arguments& arguments);
void completion(const dist::Environment& environment, const Arguments& arguments);
void keys(const dist::Environment& environment, const Arguments& arguments);
void ranks(const dist::Environment& environment, const Arguments& arguments);

}  // namespace kozero::commands
