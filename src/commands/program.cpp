// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// program.cpp: a program's main, the switch to kozero-cuda and kozero-bench, facts of the build and of the run, and
// quoting for a shell.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>

#include <kozero/commands/command.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/environment.hpp>
#include "build_facts.hpp"
#include "io/deck/check.hpp"
#include "io/deck/deck.hpp"
#include "io/deck/schema.hpp"
#include "io/hdf5/handle.hpp"
#include "io/posix/readable.hpp"
#include "kernels/matmul/product_tuning.hpp"
#include "src/commands/gpu_driver.hpp"
#include "src/commands/program.hpp"
#include "src/commands/stop_signals.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;

constexpr bool kOnHost = std::is_same_v<Device, Host>;
constexpr const char* kProgram = "kozero-cuda";
constexpr const char* kBenchProgram = kOnHost ? "kozero-bench" : "kozero-bench-cuda";

// Of libgomp's GOMP_SPINCOUNT: some microseconds.
constexpr const char* kSpinsBeforeSleep = "1000";

fs::path this_program() {
  std::error_code problem;
  return fs::read_symlink("/proc/self/exe", problem);
}

fs::path folder_of_this_program() { return this_program().parent_path(); }

/// kozero-cuda beside this program, or where its preset builds it; empty where it is not.
fs::path cuda_program() {
  const fs::path here = folder_of_this_program();
  for (const auto& path : {here / kProgram, here.parent_path() / "cuda" / kProgram}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

CudaBuild this_build() {
  if (kOnHost) return {};
  int major = 0, minor = 0;
  std::sscanf(build_facts::kCuda, "%d.%d", &major, &minor);
  return {std::atoi(build_facts::kArchitecture), 1000 * major + 10 * minor};
}

std::string gpu_unavailable_reason() { return gpu_driver().unavailable_reason; }

std::string missing_program() {
  return std::string(kProgram) + " is not beside this program: `./kozero.sh --preset cuda build` makes it";
}

/// run.device as the arguments of a command say it. What cannot be read here is refused later, by the host's program.
std::string device_asked(const Arguments& arguments) {
  const std::string key = "run.device=";
  const auto given = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [&](const std::string& each) { return each.starts_with(key); });
  if (given != arguments.rend()) return given->substr(key.size());
  const auto deck = std::find_if(arguments.begin() + 1, arguments.end(), [](const std::string& each) {
    std::error_code ignored;  // an override may be no possible path
    return fs::is_regular_file(each, ignored);
  });
  if (deck == arguments.end() || fs::path(*deck).extension() != ".toml") return "auto";
  try {
    return io::read_deck(*deck).run.device;
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
/// milliseconds, which takes their cores from other programs, and from the thread that is waited for. libgomp reads the
/// environment when it is loaded, so the program has to be started again; it is not if the user has chosen.
bool bounds_spinning() {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return false;
  return setenv(kSpins, kSpinsBeforeSleep, 1) == 0;
}

}  // namespace

const char* device_of_this_program() { return kOnHost ? "host" : "cuda"; }

void hand_over(char** argv) {
  restore_ignored_signals();
  Arguments arguments;
  for (char** each = argv + 1; *each != nullptr; ++each) arguments.emplace_back(*each);
  const bool is_bench = !arguments.empty() && arguments[0] == "bench";
  const bool restarts = (computes(arguments) || is_bench) && bounds_spinning();
  if (kOnHost && computes(arguments)) {
    const std::string device = device_asked(arguments);
    const fs::path program = device == "auto" || device == "cuda" ? cuda_program() : fs::path();
    if (!program.empty() && gpu_unavailable_reason().empty()) execv(program.c_str(), argv);
  }
  if (is_bench) execv((folder_of_this_program() / kBenchProgram).c_str(), argv);
  if (restarts) execv(this_program().c_str(), argv);
}

void bench(const dist::Environment& /*environment*/, const Arguments& /*arguments*/) {
  const fs::path path = folder_of_this_program() / kBenchProgram;
  throw Error(Failure::deck,
              path.string() + ": " + std::strerror(access(path.c_str(), X_OK) == 0 ? ENOEXEC : errno) +
                  "; it has the benchmarks: build it by `./kozero.sh " + (kOnHost ? "" : "--preset cuda ") +
                  "bench ...` or `cmake --build " + path.parent_path().string() + " --target kozero-bench`",
              Error::Seen::by_all_ranks);
}

void require_gpu() {
  const std::string reason = kOnHost ? "" : unsuitable_reason(gpu_driver(), this_build());
  if (reason.empty()) return;
  throw Error(Failure::deck, std::string(kProgram) + " needs a GPU: " + reason + "; kozero computes on the host");
}

void require_device(const io::Deck& deck) {
  if (!kOnHost && deck.run.device == "host") {
    io::refuse_value(deck, "run.device", std::string("this is ") + kProgram + "; run kozero instead");
  }
  if (kOnHost && deck.run.products == "tf32") {
    io::refuse_value(deck, "run.products", "TF32 is of GPUs; accepted on the host are \"fastest\", \"library\"");
  }
  if (!kOnHost || deck.run.device != "cuda") return;
  const std::string reason = cuda_program().empty() ? missing_program() : gpu_unavailable_reason();
  io::refuse_value(
      deck, "run.device",
      (reason.empty() ? std::string(kProgram) + " does not start" : reason) + "; accepted here are \"auto\", \"host\"");
}

io::Deck without_device(io::Deck deck) {
  deck.run.device = "auto";
  if (deck.run.products == "tf32") deck.run.products = "fastest";
  deck.run.tuning = "none";
  const char* const of_other = kOnHost && !deck.plans_for_gpus ? "host" : "disk";
  for (std::string* where : {&deck.zero.offload_optimizer, &deck.zero.offload_parameters}) {
    if (*where == of_other) *where = "none";
  }
  return deck;
}

std::string note_on_device(const io::Deck& deck) {
  if (!kOnHost) return note_on_architecture(gpu_driver(), this_build());
  if (deck.run.device != "auto" || !cuda_program().empty() || !gpu_unavailable_reason().empty()) return "";
  return "a GPU is here and run.device = \"auto\", but " + missing_program();
}

namespace {

/// Each host once, in the order of the ranks.
std::string hosts_of(const std::vector<io::RankProcess>& ranks) {
  std::vector<std::string> hosts;
  std::string text;
  for (const auto& rank : ranks) {
    if (std::find(hosts.begin(), hosts.end(), rank.host) != hosts.end()) continue;
    text += (hosts.empty() ? "" : ", ") + rank.host;
    hosts.push_back(rank.host);
  }
  return text;
}

}  // namespace

Facts program_facts() {
  Facts facts = {{"version", build_facts::kVersion},      {"commit", build_facts::kCommit},
                 {"compiler", build_facts::kCompiler},    {"kokkos", build_facts::kKokkos},
                 {"mpi", dist::Environment::library()},   {"hdf5", io::hdf5_version()},
                 {"products", kernels::product_library()}};
  if (*build_facts::kCuda != '\0') facts.emplace_back("cuda", build_facts::kCuda);
  return facts;
}

Facts run_facts(const std::string& command, const std::vector<io::RankProcess>& ranks) {
  Facts facts = {{"command", io::on_one_line(command)},
                 {"started", io::time_now()},
                 {"ranks", std::to_string(ranks.size())},
                 {"hosts", hosts_of(ranks)}};
  for (auto& fact : program_facts()) facts.push_back(std::move(fact));
  return facts;
}

std::vector<std::string> lines_of(const Facts& facts) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : facts) lines.push_back(fmt::format("{:<12} {}", name, value));
  return lines;
}

std::string json_of(const Facts& facts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : facts) json[name] = value;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool say_version(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] != "--version") return false;
  if (dist::known_rank() != 0) return true;
  const Facts facts = program_facts();
  std::cout << "kozero " << facts.front().second << "\n";
  for (const auto& line : lines_of({facts.begin() + 1, facts.end()})) std::cout << line << "\n";
  std::cout << std::flush;
  return true;
}

namespace {

using dist::Environment;

/// The exit status of an error. One that only this rank met ends the whole job here.
int reported(const Environment& environment, const Error& error) {
  const bool lone = !error.seen_by_all_ranks();
  if (lone || environment.rank() == 0) {
    report_failure(error.exit_status(), failure_line(environment.rank(), error.exit_status(), error.what()));
  }
  if (lone && Environment::has_peers()) Environment::abort(error.exit_status());
  return error.exit_status();
}

/// The exit status of what went wrong before the environment was up.
int reported_alone(int status, const std::string& what) {
  report_failure(status, failure_line(dist::known_rank(), status, what));
  if (Environment::has_peers()) Environment::abort(status);
  return status;
}

/// Whether standard output is a pipe that nobody reads any more, as after `kozero keys | head`.
bool reader_has_left() {
  struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

/// Throws Error(write) if what this process printed did not reach standard output, such as a file on a full disk.
void require_written_output() {
  errno = 0;
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (written || reader_has_left()) return;
  throw Error(Failure::write, std::string("standard output: what the command printed could not be written") +
                                  (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
}

int status_of(void (*run)(const Environment&, const Arguments&), const Environment& environment,
              const Arguments& arguments) {
  try {
    run(environment, arguments);
    require_written_output();
    return 0;
  } catch (const Error& error) {
    return reported(environment, error);
  } catch (const std::bad_alloc&) {
    return reported(environment, Error(Failure::internal, kMemoryExhausted));
  } catch (const std::exception& error) {
    return reported(environment, Error(Failure::internal, error.what()));
  }
}

int status_of_program(int argc, char** argv, void (*run)(const Environment&, const Arguments&)) {
  try {
    const Arguments arguments(argv + 1, argv + argc);
    if (say_version(arguments)) {
      require_written_output();
      return 0;
    }
    if (!needs_mpi(arguments)) return status_of(run, Environment(Environment::WithoutMpi()), arguments);
    await_stop_signals(arguments);
    const Environment environment(&argc, &argv, timeout_asked(argv));
    void (*const end)(int status) = environment.size() > 1 ? Environment::abort : nullptr;
    report_terminate(environment.rank(), end);
    set_stop_actions({.rank = environment.rank(), .command = "", .end = end, .unanswered = {}});
    return status_of(run, environment, arguments);
  } catch (const Error& error) {  // MPI or the environment did not come up
    return reported_alone(error.exit_status(), error.what());
  } catch (const std::bad_alloc&) {
    return reported_alone(static_cast<int>(Failure::internal), kMemoryExhausted);
  } catch (const std::exception& error) {  // no thread can be had
    return reported_alone(static_cast<int>(Failure::internal),
                          std::string("the program could not start: ") + error.what());
  }
}

}  // namespace

int run_program(int argc, char** argv, void (*run)(const Environment&, const Arguments&)) {
  const int status = status_of_program(argc, argv, run);
  if (status == 0 && dist::known_rank() == 0) tell_exit_status(status);
  return status;
}

std::string text_override(const std::string& key, const std::string& value) {
  // A number, a date, a list and the like are TOML; a path or a word is not, and is taken as it is.
  const bool is_path = value.find('/') != std::string::npos;
  const bool is_word = !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) != 0 && value != "true" &&
                       value != "false" && value != "inf" && value != "nan";
  return key + "=" + (is_path || is_word ? value : io::toml_string(value));
}

std::string quoted_for_shell(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=@%+-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  if (escaped(word) != word) {  // bash and zsh read $'a\nb'
    std::string text = "$'";
    for (const char letter : word) text += (letter == '\'' || letter == '\\' ? "\\" : "") + std::string(1, letter);
    return escaped(text) + "'";
  }
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

void drop_repeated_keys(std::vector<std::string>& arguments) {
  const auto key_of = [](const std::string& argument) { return argument.substr(0, argument.find('=') + 1); };
  for (auto each = arguments.begin(); each != arguments.end();) {
    const std::string key = key_of(*each);
    const bool again = !key.empty() && std::any_of(std::next(each), arguments.end(),
                                                   [&](const std::string& later) { return key_of(later) == key; });
    each = again ? arguments.erase(each) : std::next(each);
  }
}

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks) {
  const char* script = std::getenv("KOZERO_STARTED_BY");
  const std::string number = std::to_string(ranks);
  std::string line;
  if (script != nullptr) {
    line = std::string(script) + " -n " + number;
  } else if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("HYDI_CONTROL_FD") == nullptr && ranks > 1) {
    line = "srun -n " + number + " " + quoted_for_shell(program_invocation_name);
  } else {
    if (ranks > 1) line.append("mpiexec -n ").append(number).append(" ");
    line += quoted_for_shell(program_invocation_name);
  }
  line += " " + command;
  for (const auto& argument : arguments) line.append(" ").append(quoted_for_shell(argument));
  return line;
}

}  // namespace kozero::commands
