// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// program.hpp: the functions that main of kozero and of kozero-bench calls.
//   run::prepare_signals(argv);   close_inherited_channels(variables);      before libraries are initialized
//   hand_over(argv);   return run_program(argc, argv, run_command);
#pragma once
#include <filesystem>

#include <kozero/distributed/environment.hpp>
#include <kozero/program/command.hpp>

namespace kozero::program {

/// Runs a command on every rank of the environment, with the arguments after its name. Throws Error.
using Run = void (*)(const distributed::Environment& environment, const Arguments& arguments);

/// Before libraries are initialized: they open descriptors too. Closes the pipes and sockets above 2 that MPICH's
/// launcher left open in a rank, except those whose numbers are in variables named ..._FD (PMI_FD). They are the ends
/// of other ranks' outputs and of the launcher's own connection, which would stay open when the launcher's process on
/// this node dies: then nothing would notice. `variables` ends in a null. Allocates nothing.
void close_inherited_channels(char** variables);

/// Replaces this process by the program for these arguments, with the same arguments: kozero-cuda if the command
/// computes and run.device and the machine select a GPU, kozero-bench for `bench`, or this program again, with a bound
/// on how long OpenMP's threads spin. `help COMMAND` becomes `COMMAND --help`. Returns if this program is the right one
/// and the bound is set, or if the other program does not start. `argv` ends in a null.
void hand_over(char** argv);

/// The program beside this one that has the benchmarks: kozero-bench or kozero-bench-cuda.
std::filesystem::path bench_program();

/// The body of main: starts MPI, calls `run` with the arguments after the program's name, ends MPI. Returns the exit
/// status; an error becomes one line and its status. `--version` needs no MPI.
int run_program(int argc, char** argv, Run run);

}  // namespace kozero::program
