// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// piped_program.cpp: fork and exec with a socket as standard input, found on the PATH, and waitpid.
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/piped_program.hpp"

namespace kozero::io {

PipedProgram::PipedProgram(const std::string& name, const std::vector<std::string>& arguments, int output)
    : name_(name) {
  // A socket, since its writer can avoid SIGPIPE (MSG_NOSIGNAL).
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(Failure::internal, name + ": no pipe to it: " + std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  // Signals that this process blocks or ignores have their default action in the program.
  sigset_t none;
  sigset_t defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> words = {const_cast<char*>(name.c_str())};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int problem = ::posix_spawnp(&process_, name.c_str(), &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[0]);
  input_ = ends[1];
  if (problem == 0) return;
  ::close(input_);
  if (problem == ENOENT) throw Error(Failure::deck, name + " is not installed (not on the PATH)");
  throw Error(Failure::internal, name + ": cannot be started: " + std::strerror(problem));
}

PipedProgram::~PipedProgram() {
  if (process_ >= 0) wait();
}

void PipedProgram::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::send(input_, text.data(), text.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(Failure::internal, name_ + ": it ended early: " + std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

int PipedProgram::wait() {
  ::close(input_);
  const pid_t process = std::exchange(process_, -1);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) throw Error(Failure::internal, name_ + ": its end is not known: " + std::strerror(errno));
  }
  return status;
}

void PipedProgram::finish() {
  const int status = wait();
  if (status == 0) return;
  throw Error(Failure::internal,
              name_ + (WIFEXITED(status) ? ": it ended with status " + std::to_string(WEXITSTATUS(status))
                                         : ": it was ended by signal " + std::to_string(WTERMSIG(status))));
}

}  // namespace kozero::io
