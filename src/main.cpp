// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// main.cpp: the program for the device, MPI up, one command, MPI down; the only place where errors are caught, printed
// and turned into a status.
#include <cstdio>
#include <exception>
#include <string>

#include <kozero/commands/command.hpp>
#include <kozero/core/error.hpp>

namespace {

void print_line(int rank, const std::string& what) {
  std::fprintf(stderr, "[rank %d] error: %s\n", rank, what.c_str());
  std::fflush(stderr);
}

/// The exit status of an error. One that only this rank met ends the whole job here.
int reported(const kozero::dist::Environment& environment, const kozero::Error& error) {
  if (!error.seen_by_all_ranks() || environment.rank() == 0) print_line(environment.rank(), error.what());
  if (!error.seen_by_all_ranks() && environment.size() > 1) kozero::dist::Environment::abort(error.exit_status());
  return error.exit_status();
}

int run(const kozero::dist::Environment& environment, const kozero::commands::Arguments& arguments) {
  try {
    kozero::commands::run_command(environment, arguments);
    return 0;
  } catch (const kozero::Error& error) {
    return reported(environment, error);
  } catch (const std::exception& error) {
    return reported(environment, kozero::Error(kozero::Failure::internal, error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  kozero::commands::hand_over(argv);
  try {
    const kozero::dist::Environment environment(&argc, &argv, kozero::commands::timeout_asked(argv));
    return run(environment, kozero::commands::Arguments(argv + 1, argv + argc));
  } catch (const kozero::Error& error) {  // MPI itself did not come up
    print_line(0, error.what());
    return error.exit_status();
  }
}
