// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_process.cpp: fork and exec of a case, the wait for its end or for signals, and flock(2) on folders.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

#include <kozero/core/error.hpp>
#include <kozero/run/stop_signals.hpp>
#include "io/deck/named_deck.hpp"
#include "io/posix/file.hpp"
#include "src/commands/sweep_process.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kStatusVariable = "KOZERO_STATUS_FILE=";
constexpr double kPatience = 10.0;  // seconds from the request to end to SIGKILL
constexpr int kNotStarted = 127;    // the status by which shells report a program that is not there

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// This process's environment with the values of `set`, "NAME=value". The pointers live as long as `set`.
std::vector<char*> environment_with(std::vector<std::string>& set) {
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const auto replaces = [&](const std::string& one) {
      const std::size_t name = one.find('=') + 1;
      return std::strncmp(*each, one.c_str(), name) == 0;
    };
    if (std::ranges::none_of(set, replaces)) variables.push_back(*each);
  }
  for (std::string& one : set) variables.push_back(one.data());
  variables.push_back(nullptr);
  return variables;
}

/// What the child does between fork and exec; calls only what is safe there.
[[noreturn]] void become(char* const* words, char* const* variables, int output, int input, pid_t parent, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it ended before
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(words[0], words, variables);
  const int problem = errno;
  static_cast<void>(!::write(report, &problem, sizeof(problem)));
  ::_exit(kNotStarted);
}

/// Starts the program. Throws Error(deck) if it cannot be started.
pid_t started(const ProcessOrder& order, int output) {
  const std::vector<std::string>& words = order.words;
  std::vector<char*> pointers;
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  std::vector<std::string> set = {kStatusVariable + fs::absolute(order.status_file).string(),
                                  std::string(io::kDeckCopy) + "=" + fs::absolute(order.deck).string()};
  const std::vector<char*> variables = environment_with(set);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::array<int, 2> report{};
  if (input < 0 || ::pipe2(report.data(), O_CLOEXEC) != 0) {
    throw Error(Failure::internal, words[0] + ": cannot be started: " + io::errno_text());
  }
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) become(pointers.data(), variables.data(), output, input, parent, report[1]);
  ::close(input);
  ::close(report[1]);
  int problem = process < 0 ? errno : 0;
  const bool failed = process < 0 || ::read(report[0], &problem, sizeof(problem)) == sizeof(problem);
  ::close(report[0]);
  if (!failed) return process;
  if (process > 0) ::waitpid(process, nullptr, 0);
  throw Error(Failure::deck, words[0] + ": cannot be started: " + std::strerror(problem) +
                                 "; accepted with --launcher: a program that starts {ranks} ranks");
}

int status_of(int from_wait) { return WIFEXITED(from_wait) ? WEXITSTATUS(from_wait) : 128 + WTERMSIG(from_wait); }

/// A file's first number; `otherwise` if there is none.
int number_in(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : otherwise;
}

/// The process and all that it started, themselves or by others, as /proc lists them.
std::vector<pid_t> family_of(pid_t process) {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const pid_t one = std::atoi(entry.path().filename().c_str());
    if (one <= 0) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');  // "12 (name) S 11 ..."
    if (name_end != std::string::npos && text.size() > name_end + 4) {
      children.emplace(std::atoi(text.c_str() + name_end + 4), one);
    }
  }
  std::vector<pid_t> family = {process};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i]);
    for (auto each = first; each != last; ++each) family.push_back(each->second);
  }
  return family;
}

/// A case that runs: asked to end by a signal, and killed if it does not end.
class RunningCase {
 public:
  explicit RunningCase(pid_t process) : process_(process) {}

  [[nodiscard]] bool is_asked() const { return asked_; }

  /// Hands on the signal; processes that are suspended would not take it.
  void ask(int signal) {
    ::kill(process_, signal == SIGHUP ? SIGTERM : signal);  // MPICH's launcher dies of SIGHUP
    for (const pid_t each : family_of(process_)) ::kill(each, SIGCONT);
    if (!asked_) since_ = Clock::now();
    asked_ = true;
  }

  /// Ranks may have process groups of their own.
  void kill_all() {
    for (const pid_t each : family_of(process_)) ::kill(each, SIGKILL);
    ::kill(-process_, SIGKILL);
  }

  void kill_if_late() {
    if (asked_ && seconds_since(since_) > kPatience) kill_all();
  }

 private:
  pid_t process_;
  bool asked_ = false;
  Clock::time_point since_;
};

}  // namespace

FolderLock::FolderLock(const std::string& folder, For whom, double patience_s, const std::string& who,
                       StopSignals& signals, const std::function<void()>& waits) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) throw Error(Failure::write, folder + ": cannot create: " + problem.message());
  opened_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | (whom == For::this_process ? O_CLOEXEC : 0));
  if (opened_ < 0) throw Error(Failure::write, folder + ": cannot open: " + io::errno_text());
  bool told = !waits;
  for (const auto start = Clock::now(); ::flock(opened_, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (seconds_since(start) >= patience_s) {
      ::close(opened_);
      throw Error(Failure::deck, who + ": another sweep is at work there; wait for it, or stop it");
    }
    if (!told) waits();
    told = true;
    if (signals.wait() == 0) continue;
    ::close(opened_);
    throw Error(Failure::preempted, fmt::format("{}: stopped by {} while another sweep is at work there", who,
                                                run::signal_name(signals.first())));
  }
}

FolderLock::~FolderLock() { ::close(opened_); }

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set_, signal);
  }
  ::signal(SIGCHLD, SIG_DFL);  // if it was inherited as ignored, no process could be waited for
  ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int StopSignals::wait() {
  constexpr timespec kHalfASecond{0, 500'000'000};
  const int signal = ::sigtimedwait(&set_, nullptr, &kHalfASecond);
  if (signal < 0 || signal == SIGCHLD) return 0;
  urgent_ = urgent_ || (first_ != 0 && signal == SIGINT);
  if (first_ == 0) first_ = signal;
  return signal;
}

ProcessEnd run_process(const ProcessOrder& order, StopSignals& signals,
                       const std::function<void(double seconds)>& tick) {
  const io::FileDescriptor printed(order.output, io::FileDescriptor::Use::create);
  { const io::FileDescriptor made(order.status_file, io::FileDescriptor::Use::create); }
  const auto start = Clock::now();
  const pid_t process = started(order, printed.number());
  RunningCase running(process);
  ProcessEnd end;
  int from_wait = 0;
  for (pid_t ended = 0; ended != process;) {
    ended = ::waitpid(process, &from_wait, WNOHANG);
    if (ended == process) break;
    if (ended < 0 && errno != EINTR) {
      throw Error(Failure::internal, order.words[0] + ": cannot wait: " + io::errno_text());
    }
    if (const int signal = signals.wait(); signal != 0) running.ask(signal);
    if (order.timeout_s > 0.0 && !running.is_asked() && seconds_since(start) > order.timeout_s) {
      end.ran_out = true;
      running.ask(SIGTERM);
    }
    running.kill_if_late();
    if (signals.is_urgent()) running.kill_all();
    tick(seconds_since(start));
  }
  end.status = number_in(order.status_file, status_of(from_wait));
  end.seconds = seconds_since(start);
  std::error_code ignored;
  fs::remove(order.status_file, ignored);
  return end;
}

std::string reason_in(const std::string& output) {
  std::ifstream file(output);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    const auto error = line.find("error: ");
    if (line.starts_with("[rank ") && error != std::string::npos) return line.substr(error + std::strlen("error: "));
    if (!line.empty()) last = line;
  }
  return last.empty() ? "it printed nothing" : last;
}

}  // namespace kozero::commands
