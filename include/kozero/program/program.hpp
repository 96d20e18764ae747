// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// program.hpp: what the main functions of kozero and kozero-bench call.
//   run::prepare_signals(argv);   hand_over(argv);   return run_program(argc, argv, run_command);
#pragma once
#include <filesystem>

#include <kozero/distributed/environment.hpp>
#include <kozero/program/command.hpp>

namespace kozero::program {

/// What a command does on every rank of the environment, with the arguments behind its name. Throws Error.
using Run = void (*)(const distributed::Environment& environment, const Arguments& arguments);

/// Replaces this process by the program for these arguments, with the same arguments: kozero-cuda if the command
/// computes and its deck and the machine want it, kozero-bench for `bench`, or this program again, with a bound on how
/// long OpenMP's threads spin. Returns if this program is the one to run and the bound is set, or if the other one does
/// not start. `argv` ends in a null.
void hand_over(char** argv);

/// The program beside this one that has the benchmarks: kozero-bench or kozero-bench-cuda.
std::filesystem::path bench_program();

/// What a program's main does: MPI up, `run` with the arguments behind the program's name, MPI down. Returns the exit
/// status; an error becomes one line and its status. `--version` needs no MPI.
int run_program(int argc, char** argv, Run run);

}  // namespace kozero::program
