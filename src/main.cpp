// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// main.cpp: the program for these arguments, then MPI up, one command, MPI down (src/program/program.cpp). A training
// run reports its own errors (src/run/training_run.cpp), before its members are destroyed.
#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/program/program.hpp>
#include <kozero/run/stop_signals.hpp>

namespace {

void before_libraries(int /*argc*/, char** argv, char** variables) {
  kozero::run::prepare_signals(argv);
  kozero::program::close_inherited_channels(variables);
}

// The loader calls what this section lists before it initializes any library.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = before_libraries;

}  // namespace

int main(int argc, char** argv) {
  kozero::report_terminate(kozero::distributed::known_rank(), nullptr);
  kozero::program::hand_over(argv);
  return kozero::program::run_program(argc, argv, kozero::commands::run_command);
}
