// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// main.cpp: the program kozero-bench, which `kozero bench NAME ARGUMENT...` starts with the same arguments.
#include <kozero/core/error.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/program/program.hpp>
#include <kozero/run/stop_signals.hpp>
#include "src/bench/bench.hpp"

int main(int argc, char** argv) {
  kozero::run::prepare_signals(argv);
  kozero::report_terminate(kozero::distributed::known_rank(), nullptr);
  return kozero::program::run_program(argc, argv, kozero::bench::run);
}
