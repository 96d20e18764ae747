// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watchdog.cpp: the thread that looks at the call under way, a few times a second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include <unistd.h>

#include <kozero/core/error.hpp>
#include <kozero/core/failure_report.hpp>

#include "heartbeat.hpp"
#include "vain_wait.hpp"
#include "watchdog.hpp"

namespace kozero::dist {
namespace {

constexpr double kBetweenLooks = 0.1;  // seconds

std::atomic<double> timeout_in_force{600.0};
std::atomic<int> rank_in_force{-1};

/// The call under way: the main thread makes one at a time.
struct Call {
  const char* name = nullptr;
  WaitClock clock;
  std::uint64_t rounds = 0;       // the heartbeat's, as seen last
  WaitClock since_round;          // since they went on
};

struct Watch {
  std::mutex mutex;
  std::condition_variable wake;
  std::optional<Call> call;
  bool ending = false;
  bool running = false;
  std::thread thread;
};

/// Never destroyed: its thread may outlive main's.
Watch& watch() {
  static auto* const kWatch = new Watch;
  return *kWatch;
}

/// For whom the call waits in vain; "" while it does not.
std::string awaited_in_vain(Call& call) {
  const double timeout_s = comm_timeout();
  const double waited_s = call.clock.look();
  const Heartbeat* heartbeat = Heartbeat::running();
  if (heartbeat != nullptr && heartbeat->num_rounds() != call.rounds) {
    call.rounds = heartbeat->num_rounds();
    call.since_round.restart();
  }
  const bool heartbeat_is_let_in = heartbeat != nullptr && call.since_round.look() < timeout_s;
  if (heartbeat_is_let_in) return heartbeat->vain(Role::training);
  return waited_s < timeout_s ? "" : kAnotherRank;
}

[[noreturn]] void end_process(Call& call, const std::string& whom) {
  constexpr auto kStatus = static_cast<int>(Failure::communication);
  const int rank = known_rank();
  const std::string text = waited_in_vain(rank, call.clock.look(), call.name, whom) + details(rank);
  report_failure(kStatus, "[rank " + std::to_string(rank) + "] error: " + text);
  std::fflush(nullptr);
  _exit(kStatus);
}

void run() {
  std::unique_lock lock(watch().mutex);
  while (!watch().ending) {
    if (!watch().call) {
      watch().wake.wait(lock);
      continue;
    }
    const double pause = std::min(kBetweenLooks, comm_timeout() / 8.0);
    watch().wake.wait_for(lock, std::chrono::duration<double>(pause));
    if (!watch().call) continue;
    const std::string whom = awaited_in_vain(*watch().call);
    if (!whom.empty()) end_process(*watch().call, whom);
  }
}

}  // namespace

double comm_timeout() { return timeout_in_force; }
void set_comm_timeout(double seconds) { timeout_in_force = seconds; }

int known_rank() {
  if (rank_in_force >= 0) return rank_in_force;
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

void set_rank(int rank) { rank_in_force = rank; }

Watchdog::Watchdog() {
  Watch& mine = watch();
  const std::lock_guard lock(mine.mutex);
  if (mine.running) throw Error(Failure::internal, "a second watchdog");
  mine.running = true;
  mine.ending = false;
  mine.thread = std::thread(run);
}

Watchdog::~Watchdog() {
  Watch& mine = watch();
  {
    const std::lock_guard lock(mine.mutex);
    mine.ending = true;
    mine.running = false;
  }
  mine.wake.notify_all();
  mine.thread.join();
}

BlockingCall::BlockingCall(const char* name) {
  {
    const std::lock_guard lock(watch().mutex);
    watch().call.emplace();
    watch().call->name = name;
  }
  watch().wake.notify_all();
}

BlockingCall::~BlockingCall() {
  const std::lock_guard lock(watch().mutex);
  watch().call.reset();
}

}  // namespace kozero::dist
