// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// without_liveness.cpp: replaces src/distributed/liveness where the ranks share one process: positions are not
// recorded, and no heartbeat and no watchdog run.
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

void Whereabouts::started(Event /*event*/) {}
std::string Whereabouts::newest(std::size_t /*count*/) const { return ""; }
Whereabouts::Wait::Wait(Role role) : role_(static_cast<std::size_t>(role)) {}
Whereabouts::Wait::~Wait() = default;
Whereabouts& whereabouts() {
  static Whereabouts here;
  return here;
}

std::atomic<Heartbeat*>& Heartbeat::current() {
  static std::atomic<Heartbeat*> none = nullptr;
  return none;
}

std::string Heartbeat::vain(Role /*role*/) const { return ""; }
std::string Heartbeat::awaited(Role /*role*/) const { return "another rank"; }
std::string Heartbeat::working_rank(Role /*role*/) const { return "another rank"; }
std::string Heartbeat::name_of(int rank) const { return "rank " + std::to_string(rank); }
std::vector<std::string> Heartbeat::positions_of_ranks(std::size_t /*most*/) const { return {}; }

BlockingCall::BlockingCall(const char* /*name*/) {}
BlockingCall::~BlockingCall() = default;

}  // namespace kozero::distributed
