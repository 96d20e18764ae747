// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// peer_watch.cpp: the thread on the peer's pidfd.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "io/run/run_status.hpp"
#include "src/commands/peer_watch.hpp"

namespace kozero::commands {

PeerWatch::PeerWatch(pid_t peer, std::function<void()> ended) {
#if defined(SYS_pidfd_open)
  peer_ = static_cast<int>(::syscall(SYS_pidfd_open, peer, 0));
  stop_ = peer_ < 0 ? -1 : ::eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return;
  thread_ = std::thread([this, ended = std::move(ended)] {
    std::array<struct pollfd, 2> either = {{{peer_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    while (::poll(either.data(), either.size(), -1) < 0 && errno == EINTR) continue;
    if (either[1].revents == 0 && either[0].revents != 0) ended();
  });
#else
  static_cast<void>(peer);
  static_cast<void>(ended);
#endif
}

PeerWatch::~PeerWatch() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(stop_, &one, sizeof(one)));
    thread_.join();
  }
  for (const int file : {peer_, stop_}) {
    if (file >= 0) ::close(file);
  }
}

std::string process_space() {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size() - 1);
  return io::host_name() + "/" + (length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "");
}

}  // namespace kozero::commands
