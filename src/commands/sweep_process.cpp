// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sweep_process.cpp: fork and exec of a case, the wait for its end or for signals, and flock(2) on folders.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <kozero/core/error.hpp>
#include <kozero/run/stop_signals.hpp>
#include "io/posix/file.hpp"
#include "src/commands/sweep_process.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kStatusVariable = "KOZERO_STATUS_FILE=";
constexpr int kNotStarted = 127;  // the status by which shells report a program that is not there

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// This process's environment with another KOZERO_STATUS_FILE. The pointers live as long as `status`.
std::vector<char*> environment_with(std::string& status) {
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::strncmp(*each, kStatusVariable, std::strlen(kStatusVariable)) != 0) variables.push_back(*each);
  }
  variables.push_back(status.data());
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
pid_t started(const std::vector<std::string>& words, int output, const std::string& status_file) {
  std::vector<char*> pointers;
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  std::string status = kStatusVariable + fs::absolute(status_file).string();
  const std::vector<char*> variables = environment_with(status);
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

ProcessEnd run_process(const std::vector<std::string>& words, const std::string& output, const std::string& status_file,
                       StopSignals& signals, const std::function<void(double seconds)>& tick) {
  const io::FileDescriptor printed(output, io::FileDescriptor::Use::create);
  { const io::FileDescriptor made(status_file, io::FileDescriptor::Use::create); }
  const auto start = Clock::now();
  const pid_t process = started(words, printed.number(), status_file);
  int from_wait = 0;
  for (pid_t ended = 0; ended != process;) {
    ended = ::waitpid(process, &from_wait, WNOHANG);
    if (ended == process) break;
    if (ended < 0 && errno != EINTR) throw Error(Failure::internal, words[0] + ": cannot wait: " + io::errno_text());
    const int signal = signals.wait();
    // MPICH's launcher dies of SIGHUP.
    if (signal != 0) ::kill(process, signal == SIGHUP ? SIGTERM : signal);
    if (signals.is_urgent()) ::kill(-process, SIGKILL);
    tick(seconds_since(start));
  }
  ProcessEnd end{number_in(status_file, status_of(from_wait)), seconds_since(start)};
  std::error_code ignored;
  fs::remove(status_file, ignored);
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
