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
  bool computes = false;   ///< on run.device
  std::string words = {};  ///< what a shell completes, of bench and benchmarks; "KEYS": overrides. Others are asked
  bool alone = false;      ///< asks no other rank, so MPI is not started for it
};

/// All commands, in the order of the help text.
const std::vector<Command>& all_commands();

/// What the program kozero-bench runs, named "bench kernels". It has the functions, and run is null here.
const std::vector<Command>& benchmarks();

/// Of all_commands() or benchmarks(). Throws Error(deck) with the nearest name for an unknown one.
const Command& command_named(const std::string& name);

/// Replaces this process by the program for these arguments, with the same arguments:
/// kozero-cuda if the command computes and its deck and the machine want it, kozero-bench for `bench`, or this program
/// again, with a bound on how long OpenMP's threads spin. Returns if this program is the one to run and the bound is set,
/// or if the other one does not start. `argv` ends in a null.
void hand_over(char** argv);

/// comm.timeout_s as the arguments or the deck that they name say it, before MPI is up; the default where they do not.
double timeout_asked(char** argv);

/// Where the arguments are `--version`: prints the program's version, commit and libraries, needing no MPI, and returns
/// true.
bool say_version(const Arguments& arguments);

/// What a program's main does: MPI up, `run` with the arguments behind the program's name, MPI down. Returns the exit
/// status; an error becomes one line and its status. `--version` needs no MPI.
int run_program(int argc, char** argv, void (*run)(const dist::Environment& environment, const Arguments& arguments));

/// Whether MPI is started for these arguments: not for help, an unknown command, or one that is `alone`.
bool needs_mpi(const Arguments& arguments);

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
/// Where kozero-bench did not start (hand_over): throws Error(deck).
void bench(const dist::Environment& environment, const Arguments& arguments);
void plot(const dist::Environment& environment, const Arguments& arguments);
void completion(const dist::Environment& environment, const Arguments& arguments);
void keys(const dist::Environment& environment, const Arguments& arguments);
void ranks(const dist::Environment& environment, const Arguments& arguments);

}  // namespace kozero::commands
