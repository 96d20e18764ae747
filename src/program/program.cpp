// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// program.cpp: a program's main, and the switch to kozero-cuda and kozero-bench.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <vector>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/output.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/program/program.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/provenance.hpp>
#include <kozero/run/stop_signals.hpp>
#include "io/deck/deck.hpp"
#include "io/deck/named_deck.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/named_file.hpp"
#include "io/posix/system_resources.hpp"

namespace kozero::program {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBenchProgram = kHostIsDevice ? "kozero-bench" : "kozero-bench-cuda";

// For libgomp's GOMP_SPINCOUNT: some microseconds.
constexpr const char* kSpinsBeforeSleep = "1000";

/// run.device in a command's arguments or deck. The host's program rejects later what cannot be read here.
std::string device_asked(const Arguments& arguments) {
  const std::string key = "run.device=";
  const auto given = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [&](const std::string& each) { return each.starts_with(key); });
  if (given != arguments.rend()) return given->substr(key.size());
  const auto deck = std::find_if(arguments.begin() + 1, arguments.end(), [](const std::string& each) {
    std::error_code ignored;  // an override may be an impossible path
    return fs::is_regular_file(each, ignored);
  });
  if (deck == arguments.end() || fs::path(*deck).extension() != ".toml") return "auto";
  try {
    return io::read_named_deck(*deck).run.device;
  } catch (const Error&) {
    return "host";
  }
}

bool computes(const Arguments& arguments) {
  if (arguments.empty()) return false;
  const auto& all = all_commands();
  const auto command =
      std::find_if(all.begin(), all.end(), [&](const Command& each) { return each.name == arguments[0]; });
  return command != all.end() && command->computes;
}

/// Bounds how long OpenMP's threads spin when they wait for each other. By default libgomp lets them spin for
/// milliseconds, which takes cores from other programs, and from the thread that they wait for. libgomp reads the
/// environment when it is loaded, so the program must be started again. The user's own setting stays.
bool bounds_spinning() {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return false;
  return setenv(kSpins, kSpinsBeforeSleep, 1) == 0;
}

/// The number after "..._FD=" in a variable; -1 for another variable.
int descriptor_in(const char* variable) {
  const char* const value = std::strchr(variable, '=');
  if (value == nullptr || value - variable < 3 || std::strncmp(value - 3, "_FD", 3) != 0) return -1;
  return std::atoi(value + 1);
}

bool is_channel(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

using distributed::Environment;

/// For the arguments `--version`: prints the program's version, commit and libraries, without MPI, and returns true.
bool say_version(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] != "--version") return false;
  if (distributed::known_rank() != 0) return true;
  const run::Facts facts = run::program_facts();
  std::cout << "kozero " << facts.front().second << "\n";
  for (const auto& line : run::lines_of({facts.begin() + 1, facts.end()})) std::cout << line << "\n";
  std::cout << std::flush;
  return true;
}

/// comm.timeout_s from the arguments or their deck, read before MPI is up; the default if neither gives it.
double timeout_asked(char** argv) {
  const std::string key = "comm.timeout_s=";
  std::string deck;
  std::vector<std::string> given;
  for (char** each = argv + 1; *each != nullptr; ++each) {
    if (std::string(*each).starts_with(key)) given.emplace_back(*each);
    if (deck.empty() && std::string(*each).ends_with(".toml")) deck = *each;
  }
  try {
    if (!deck.empty()) return io::read_named_deck(deck, given).comm.timeout_s;
    if (given.empty()) return io::Deck().comm.timeout_s;
    const std::string text = given.back().substr(key.size());
    return std::max(io::number_with_unit(*io::find_row("comm.timeout_s"), text).value_or(std::stod(text)), 1e-3);
  } catch (const std::exception&) {  // rejected with the reason when the command reads the deck
  }
  return io::Deck().comm.timeout_s;
}

/// The exit status of an error. An error that only this rank has seen ends the whole job here.
int reported(const Environment& environment, const Error& error) {
  const bool lone = !error.seen_by_all_ranks();
  if (lone || environment.rank() == 0) {
    report_failure(error.exit_status(), failure_line(environment.rank(), error.exit_status(), error.what()));
  }
  if (lone && Environment::has_peers()) Environment::abort(error.exit_status());
  return error.exit_status();
}

/// Reports an error from before the environment was up, and returns its exit status.
int reported_alone(int status, const std::string& what) {
  report_failure(status, failure_line(distributed::known_rank(), status, what));
  if (Environment::has_peers()) Environment::abort(status);
  return status;
}

/// For a reader of standard output that reads nothing; the lines that are kept for it are lost then.
constexpr std::chrono::seconds kReaderPatience{5};

/// Whether standard output is a pipe that nobody reads any more, as after `kozero keys | head`.
bool reader_has_left() {
  struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

/// Throws Error(write) if what this process printed did not reach standard output, such as a file on a full disk.
void require_written_output() {
  errno = 0;
  std::cout.flush();
  drain_standard_output(kReaderPatience);
  const bool written = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (written || reader_has_left()) return;
  throw Error(Failure::write, std::string("standard output: what the command printed could not be written") +
                                  (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
}

int status_of(Run run, const Environment& environment, const Arguments& arguments) {
  try {
    run(environment, arguments);
    require_written_output();
    return 0;
  } catch (const Error& error) {
    return reported(environment, error);
  } catch (const std::bad_alloc&) {
    return reported(environment, Error(Failure::internal, io::memory_exhausted()));
  } catch (const std::exception& error) {
    return reported(environment, Error(Failure::internal, error.what()));
  }
}

void require_working_folder() {
  std::error_code problem;
  fs::current_path(problem);
  if (!problem) return;
  throw Error(Failure::deck, "the current folder was deleted, or cannot be read (" + problem.message() +
                                 "); change to one that is there (cd)");
}

int status_of_program(int argc, char** argv, Run run) {
  const io::NamedFiles files;
  try {
    const Arguments arguments(argv + 1, argv + argc);
    if (say_version(arguments)) {
      require_written_output();
      return 0;
    }
    if (!arguments.empty()) require_working_folder();
    if (!needs_mpi(arguments)) return status_of(run, Environment(Environment::WithoutMpi()), arguments);
    run::await_stop_signals(arguments);
    const Environment environment(&argc, &argv, timeout_asked(argv));
    void (*const end)(int status) = environment.size() > 1 ? Environment::abort : nullptr;
    report_terminate(environment.rank(), end);
    run::set_stop_actions({.rank = environment.rank(), .command = "", .end = end, .unanswered = {}});
    return status_of(run, environment, arguments);
  } catch (const Error& error) {  // MPI or the environment did not start
    return reported_alone(error.exit_status(), error.what());
  } catch (const std::bad_alloc&) {
    return reported_alone(static_cast<int>(Failure::internal), io::memory_exhausted());
  } catch (const std::exception& error) {  // no thread can be started
    return reported_alone(static_cast<int>(Failure::internal),
                          std::string("the program could not start: ") + error.what());
  }
}

/// `help COMMAND...` is `COMMAND... --help`: starts this program again with these arguments.
void hand_over_help(char** argv) {
  static char option[] = "--help";  // NOLINT(modernize-avoid-c-arrays): execv takes char*
  if (argv[1] == nullptr || std::string(argv[1]) != "help" || argv[2] == nullptr || argv[2][0] == '-') return;
  std::vector<char*> words = {argv[0]};
  for (char** each = argv + 2; *each != nullptr; ++each) words.push_back(*each);
  words.insert(words.end(), {option, nullptr});
  execv(run::this_program().c_str(), words.data());
}

}  // namespace

fs::path bench_program() { return run::this_program().parent_path() / kBenchProgram; }

void close_inherited_channels(char** variables) {
  constexpr int kMostDescriptors = 4096;  // of a launcher with a thousand ranks on a node
  bool by_hydra = false;
  for (char** each = variables; *each != nullptr; ++each) {
    by_hydra = by_hydra || std::strncmp(*each, "HYDI_CONTROL_FD=", 16) == 0;
  }
  for (int descriptor = STDERR_FILENO + 1; by_hydra && descriptor < kMostDescriptors; ++descriptor) {
    if (!is_channel(descriptor)) continue;
    bool is_named = false;
    for (char** each = variables; *each != nullptr; ++each) is_named = is_named || descriptor_in(*each) == descriptor;
    if (!is_named) ::close(descriptor);
  }
}

void hand_over(char** argv) {
  run::restore_ignored_signals();
  hand_over_help(argv);
  Arguments arguments;
  for (char** each = argv + 1; *each != nullptr; ++each) arguments.emplace_back(*each);
  const bool is_bench = !arguments.empty() && arguments[0] == "bench";
  const bool is_sweep = !arguments.empty() && arguments[0] == "sweep";  // measures rates for its runs
  const bool restarts = (computes(arguments) || is_bench || is_sweep) && bounds_spinning();
  if (kHostIsDevice && computes(arguments)) {
    const std::string device = device_asked(arguments);
    const fs::path program = device == "auto" || device == "cuda" ? run::usable_cuda_program() : fs::path();
    if (!program.empty()) execv(program.c_str(), argv);
  }
  if (is_bench) execv(bench_program().c_str(), argv);
  if (restarts) execv(run::this_program().c_str(), argv);
}

int run_program(int argc, char** argv, Run run) {
  const int status = status_of_program(argc, argv, run);
  if (status == 0 && distributed::known_rank() == 0) tell_exit_status(status);
  return status;
}

}  // namespace kozero::program
