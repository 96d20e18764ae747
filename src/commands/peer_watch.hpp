// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// peer_watch.hpp: the death of another rank's process on the same node, seen by a thread of its own.
#pragma once
#include <sys/types.h>
#include <functional>
#include <string>
#include <thread>

namespace kozero::commands {

// Notices within microseconds that a process of the same node ended, by a thread that waits on its pidfd. A launcher
// kills the other ranks some milliseconds after one was killed. In about half of the cases that is enough to write a
// failure note; if the launcher does not kill them, in all.     pidfd_open(2), Linux 5.3

class PeerWatch {
 public:
  /// Calls `ended`, once, on a thread of its own. Watches nothing if the system has no pidfd.
  PeerWatch(pid_t peer, std::function<void()> ended);
  /// Returns when `ended` is not running and never will be. Not from `ended` itself.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  int peer_ = -1;
  int stop_ = -1;  // an eventfd
  std::thread thread_;
};

/// Names the processes that this one can watch: two of equal names share a host and its process numbers.
std::string process_space();

}  // namespace kozero::commands
