// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// relay.cpp: the hidden command `relay`, through which kozero.sh reads what the launcher of a run prints.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/output.hpp>

namespace kozero::commands {
namespace {

constexpr std::chrono::seconds kReaderPatience{5};

/// Finds the process that MPICH's launcher names when a rank dies: "=   PID 1234 RUNNING AT host". The launcher names
/// the first one that ended, and prints that before it ends the others.
class DeathNotice {
 public:
  /// `file`: exists, and gets the process number; "" for none.
  explicit DeathNotice(std::string file) : file_(std::move(file)) {}

  void read(std::string_view bytes) {
    if (file_.empty()) return;
    for (const char letter : bytes) {
      if (letter == '\n') {
        take_line();
        line_.clear();
      } else if (line_.size() < kLongest) {
        line_ += letter;
      }
    }
  }

 private:
  static constexpr std::size_t kLongest = 80;

  void take_line() {
    constexpr std::string_view kBegin = "=   PID ";
    const std::size_t end = line_.find(" RUNNING AT ");
    if (!line_.starts_with(kBegin) || end == std::string::npos) return;
    const std::string number = line_.substr(kBegin.size(), end - kBegin.size()) + "\n";
    const int opened = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (opened < 0) return;
    static_cast<void>(!::write(opened, number.data(), number.size()));
    ::close(opened);
  }

  std::string file_;
  std::string line_;
};

}  // namespace

/// relay [FILE]: copies standard input to standard output and never waits for its reader, since a launcher that waits
/// hands on no signal, and its ranks wait with it. Once nobody reads any more, the rest is dropped. FILE gets the
/// number of the process whose death the launcher reports.
void relay(const distributed::Environment& /*environment*/, const Arguments& arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  QueuedOutput output(STDOUT_FILENO);
  DeathNotice notice(arguments.empty() ? "" : arguments[0]);
  std::array<char, 1 << 16> buffer{};
  while (true) {
    std::array<struct pollfd, 2> both = {{{STDIN_FILENO, POLLIN, 0}, {output.descriptor(), POLLOUT, 0}}};
    if (::poll(both.data(), output.is_behind() ? 2 : 1, -1) < 0) continue;
    if (both[1].revents != 0) output.write("");
    if (both[0].revents == 0) continue;
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
    output.write(bytes);
    notice.read(bytes);
  }
  output.drain(kReaderPatience);
  const int problem = output.problem();
  if (problem == 0 || problem == EPIPE || problem == EBADF) return;  // nobody reads, or it is closed
  throw Error(Failure::write, std::string("standard output: lines could not be written: ") + std::strerror(problem));
}

}  // namespace kozero::commands
