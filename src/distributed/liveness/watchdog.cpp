// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// watchdog.cpp: positions and collectives as text, and the thread that checks the blocking call a few times per second.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include <kozero/core/error.hpp>
#include <kozero/core/events.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/launched_ranks.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

namespace {

template <std::size_t kSize>
void put(std::array<char, kSize>& to, const char* text) {
  std::memcpy(to.data(), text, std::min(std::strlen(text), kSize - 1));
}

std::string bytes_of(std::int64_t bytes) { return " (" + std::to_string(bytes) + " bytes)"; }

std::string words(const Event& event) {
  const std::string step = " in step " + std::to_string(event.step) + ", " + event.phase;
  if (event.sequence == 0) return event.name + step;
  std::string text = std::to_string(event.sequence) + " " + event.name + " of " + event.owner;
  if (event.unit >= 0 && !event.of_saver) text += " for unit " + std::to_string(event.unit);
  return text + bytes_of(event.bytes) + step;
}

thread_local int waits_of_this_thread = 0;

constexpr double kBetweenLooks = 0.1;  // seconds
constexpr int kLongestReport = 10;     // seconds for which an abort waits

constexpr const char* kNotStarted =
    "another rank: it did not start (the launcher says why), or its host and this one do not reach each other (a "
    "firewall, or the wrong network: UCX_NET_DEVICES), or comm.timeout_s is too short";

std::atomic<double> timeout_in_force{600.0};

/// The call under way; the main thread makes one at a time.
struct Call {
  const char* name = nullptr;
  WaitClock clock;
  std::uint64_t rounds = 0;  // the heartbeat's num_rounds() at the last check
  WaitClock since_round;     // since num_rounds() grew
};

struct Watch {
  std::mutex mutex;
  std::condition_variable wake;
  std::optional<Call> call;
  bool ending = false;
  bool running = false;
  std::thread thread;
  struct sigaction on_abort_before {};
};

/// Never destroyed, since its thread may outlive the main thread.
Watch& watch() {
  static auto* const kWatch = new Watch;
  return *kWatch;
}

/// Of the ranks that cannot tell which rank is missing, rank 0 reports first, and ends the job. A rank that can tell
/// needs no more than the timeout.
double longest_without_name(double timeout_s) {
  constexpr double kLongestTurn = 1.0;  // seconds
  return timeout_s + std::min(kLongestTurn, timeout_s / 8.0) * (known_rank() == 0 ? 1.0 : 2.0);
}

/// The rank that a stuck call waits for; "" while the call may still return.
std::string awaited_in_vain(Call& call) {
  const double timeout_s = comm_timeout();
  const double waited_s = call.clock.look(timeout_s);
  const Heartbeat* heartbeat = Heartbeat::running();
  if (heartbeat != nullptr && heartbeat->num_rounds() != call.rounds) {
    call.rounds = heartbeat->num_rounds();
    call.since_round.restart();
  }
  const bool heartbeat_is_let_in = heartbeat != nullptr && call.since_round.look(timeout_s) < timeout_s;
  if (heartbeat_is_let_in) return heartbeat->vain(Role::training);
  if (waited_s < timeout_s) return "";
  const std::string named = heartbeat == nullptr ? ranks_not_arrived() : "";
  if (!named.empty()) return named + kLostOrTooShort;
  if (waited_s < longest_without_name(timeout_s)) return "";
  return std::string_view(call.name) == kMpiStart ? kNotStarted : kAnotherRank;
}

[[noreturn]] void end_process(const std::string& text) {
  constexpr auto kStatus = static_cast<int>(Failure::communication);
  const int rank = known_rank();
  report_failure(kStatus, failure_line(rank, kStatus, text + details(rank)));
  std::fflush(nullptr);
  _exit(kStatus);
}

/// Rank 0 speaks for all ranks of its node; another rank does if rank 0 does not. Other nodes' ranks are ended by the
/// rest of the launcher, or miss this one.
[[noreturn]] void end_without_launcher() {
  constexpr auto kStatus = static_cast<int>(Failure::communication);
  constexpr std::chrono::milliseconds kFirstRankPatience{500};
  const int rank = known_rank();
  if (rank > 0) std::this_thread::sleep_for(kFirstRankPatience);
  report_failure(kStatus, failure_line(rank, kStatus,
                                       "rank " + std::to_string(rank) +
                                           ": the launcher's process that started it has ended (killed, or crashed), "
                                           "and without it no rank of this node can go on"));
  _exit(kStatus);
}

enum Aborted : int { kNot, kInWait, kElsewhere };  // whether the thread that aborted waited for other ranks

std::atomic<int> aborted = kNot;  // written by a signal handler
std::atomic<bool> abort_reported = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// The watchdog's thread reports, since a signal handler must not. Then the signal has its default action, unless
/// another failure was reported before: the MPI library may abort when it meets a rank that was found lost already.
extern "C" void on_abort(int signal) {
  constexpr int kLooksPerSecond = 100;
  aborted = waits_of_this_thread > 0 ? kInWait : kElsewhere;
  for (int look = 0; look < kLongestReport * kLooksPerSecond && !abort_reported; ++look) {
    ::poll(nullptr, 0, 1000 / kLooksPerSecond);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void report_abort() {
  constexpr int kStatus = 128 + SIGABRT;  // as a shell reports it
  const int rank = known_rank();
  const int first = report_failure(
      kStatus,
      failure_line(rank, kStatus,
                   "rank " + std::to_string(rank) + " ended by SIGABRT (" + position_text(whereabouts().beat()) +
                       "): the program or a library aborted, as the C library does if memory is "
                       "damaged; what it said is above; please report this"));
  if (first != kStatus) _exit(first);
  abort_reported = true;
}

void run() {
  std::unique_lock lock(watch().mutex);
  while (!watch().ending) {
    const double pause = std::min(kBetweenLooks, comm_timeout() / 8.0);
    watch().wake.wait_for(lock, std::chrono::duration<double>(pause));
    if (aborted == kInWait) {
      end_process("rank " + std::to_string(known_rank()) +
                  " ended by SIGABRT in a wait for another rank: the MPI library aborts if that rank is lost, the C "
                  "library if memory is damaged; what they said is above");
    }
    if (aborted == kElsewhere && !abort_reported) report_abort();
    if (launcher_is_lost()) end_without_launcher();
    if (!watch().call) continue;
    Call& call = *watch().call;
    const std::string whom = awaited_in_vain(call);
    if (!whom.empty()) end_process(waited_in_vain(known_rank(), call.clock.look(comm_timeout()), call.name, whom));
  }
}

}  // namespace

std::string position_text(const Beat& beat) {
  std::string text = beat.step > 0 ? "step " + std::to_string(beat.step) + ", " : "";
  text += beat.phase.data();
  if (beat.step > 0 && beat.unit >= 0) text += ", unit " + std::to_string(beat.unit);
  if (beat.ends != 0) return text + ", at its end";
  if (beat.collective[0] == '\0') return text + ", before its first collective";
  text += beat.waits[static_cast<std::size_t>(Role::training)] != 0 ? ", waiting in " : ", working after ";
  if (beat.sequence == 0) return text + beat.collective.data();
  return text + beat.collective.data() + " " + std::to_string(beat.sequence) + " of " + beat.communicator.data() +
         bytes_of(beat.bytes);
}

void Whereabouts::started(Event event) {
  event.kind = Event::Kind::start;
  events().begin(event);
}

Beat Whereabouts::beat() const {
  Beat beat;
  for (std::size_t role = 0; role < kRoles; ++role) {
    beat.waits[role] = waits_[role];
    beat.waits_begun[role] = waits_begun_[role];
  }
  const Position& here = position();
  put(beat.phase, here.phase.load());
  beat.step = here.step;
  beat.unit = here.unit;
  if (const auto newest = events().newest_start()) {
    put(beat.collective, newest->name);
    put(beat.communicator, newest->owner);
    beat.sequence = newest->sequence;
    beat.bytes = newest->bytes;
  }
  return beat;
}

std::string Whereabouts::newest(std::size_t count) const {
  std::string text;
  for (const Event& event : events().newest(count, [](const Event& each) { return each.kind == Event::Kind::start; })) {
    text += (text.empty() ? "" : "; ") + words(event);
  }
  return text;
}

Whereabouts::Wait::Wait(Role role) : role_(static_cast<std::size_t>(role)) {
  ++waits_of_this_thread;
  whereabouts().waits_begun_[role_].fetch_add(1, std::memory_order_relaxed);
  whereabouts().waits_[role_].store(1, std::memory_order_relaxed);
}

Whereabouts::Wait::~Wait() {
  --waits_of_this_thread;
  whereabouts().waits_[role_].store(0, std::memory_order_relaxed);
  whereabouts().waits_begun_[role_].fetch_add(1, std::memory_order_relaxed);
}

Whereabouts& whereabouts() {
  static Whereabouts here;
  return here;
}

double comm_timeout() { return timeout_in_force; }
void set_comm_timeout(double seconds) { timeout_in_force = seconds; }

Watchdog::Watchdog() {
  Watch& mine = watch();
  const std::lock_guard lock(mine.mutex);
  if (mine.running) throw Error(Failure::internal, "a second watchdog");
  mine.running = true;
  mine.ending = false;
  mine.thread = std::thread(run);
  struct sigaction action {};
  action.sa_handler = on_abort;
  action.sa_flags = SA_ONSTACK | SA_RESTART;  // host.hpp, use_signal_stack()
  sigaction(SIGABRT, &action, &mine.on_abort_before);
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
  sigaction(SIGABRT, &mine.on_abort_before, nullptr);
}

void name_watchdog(const char* name) {
  const std::lock_guard lock(watch().mutex);
  if (watch().running) pthread_setname_np(watch().thread.native_handle(), name);
}

BlockingCall::BlockingCall(const char* name) {
  whereabouts().started({.name = name});
  const std::lock_guard lock(watch().mutex);
  watch().call.emplace();
  watch().call->name = name;
}

BlockingCall::~BlockingCall() {
  const std::lock_guard lock(watch().mutex);
  watch().call.reset();
}

}  // namespace kozero::distributed
