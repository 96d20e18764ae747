// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// main.cpp: the program for the device, MPI up, one command, MPI down; errors are caught here and turned into a line
// and a status. A training run reports its own (commands/training_run.cpp), before its members are destroyed.
#include <exception>
#include <new>
#include <string>

#include <kozero/commands/command.hpp>
#include <kozero/core/error.hpp>
#include <kozero/dist/environment.hpp>

namespace {

using kozero::dist::Environment;

/// The exit status of an error. One that only this rank met ends the whole job here.
int reported(const Environment& environment, const kozero::Error& error) {
  const bool lone = !error.seen_by_all_ranks();
  if (lone || environment.rank() == 0) {
    kozero::report_failure(error.exit_status(),
                           kozero::failure_line(environment.rank(), error.exit_status(), error.what()));
  }
  if (lone && Environment::has_peers()) Environment::abort(error.exit_status());
  return error.exit_status();
}

/// The exit status of what went wrong before the environment was up.
int reported_alone(int status, const std::string& what) {
  kozero::report_failure(status, kozero::failure_line(kozero::dist::known_rank(), status, what));
  if (Environment::has_peers()) Environment::abort(status);
  return status;
}

int run(const Environment& environment, const kozero::commands::Arguments& arguments) {
  try {
    kozero::commands::run_command(environment, arguments);
    return 0;
  } catch (const kozero::Error& error) {
    return reported(environment, error);
  } catch (const std::bad_alloc&) {
    return reported(environment, kozero::Error(kozero::Failure::internal, kozero::kMemoryExhausted));
  } catch (const std::exception& error) {
    return reported(environment, kozero::Error(kozero::Failure::internal, error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  kozero::report_terminate(kozero::dist::known_rank(), nullptr);
  try {
    kozero::commands::hand_over(argv);
    const kozero::commands::Arguments arguments(argv + 1, argv + argc);
    if (kozero::commands::say_version(arguments)) return 0;
    kozero::commands::await_stop_signals(arguments);
    const Environment environment(&argc, &argv, kozero::commands::timeout_asked(argv));
    kozero::report_terminate(environment.rank(), environment.size() > 1 ? Environment::abort : nullptr);
    return run(environment, arguments);
  } catch (const kozero::Error& error) {  // MPI or the environment did not come up
    return reported_alone(error.exit_status(), error.what());
  } catch (const std::bad_alloc&) {
    return reported_alone(static_cast<int>(kozero::Failure::internal), kozero::kMemoryExhausted);
  } catch (const std::exception& error) {  // no thread can be had
    return reported_alone(static_cast<int>(kozero::Failure::internal),
                          std::string("the program could not start: ") + error.what());
  }
}
