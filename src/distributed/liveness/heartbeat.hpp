// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heartbeat.hpp: a thread that reports this rank's state and position to the other ranks a few times per second.
//   every rank --Beat--> rank 0 --Beats of the ranks that matter to others, at most kMostReported--> every rank
//   every 0.25 s, or every comm.timeout_s / 8 if that is shorter
// So rank 0 sends and receives O(n) bytes per round. Beats of all ranks to all ranks would be O(n^2), 2.1 GB at 4,096.
// So a wait for work of any length (rank 0 prepares a large text) lasts while all ranks live, and ends
//   once a rank sent no beat for comm.timeout_s, or
//   once every rank waits and no wait began or ended for comm.timeout_s, a deadlock. Rank 0 detects the deadlock and
//   reports it to all ranks; the report is permanent.
// A rank that ends sends a last beat and ends when all ranks do; ranks that wait for it learn that it will not come.
// Needs MPI_THREAD_MULTIPLE. Between two beats the thread sleeps. No further beat is sent while the last one is not
// received, so that none pile up for a suspended rank. Times are those of wait_clock.hpp.
#pragma once
#include <mpi.h>
#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/wait_clock.hpp>
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {

inline constexpr std::size_t kMostReported = 16;

/// The beats of `table`, one per rank, that rank 0 sends to the others: all if there are at most kMostReported. Else
/// its own, those of the ranks not heard of for the longest times, of the first two ranks that do not wait in each
/// role, and of the first rank that ends.
std::vector<Beat> beats_to_report(const std::vector<Beat>& table);

/// Updates `table` on another rank by the beats that rank 0 reported. The other ranks were heard of, and wait.
void take_report(const std::vector<Beat>& reported, std::vector<Beat>& table);

class Heartbeat {
 public:
  /// Collective over `world`, which has several ranks.
  explicit Heartbeat(MPI_Comm world);
  /// Without end(), the other ranks get no more beats of this rank.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// This process's heartbeat, or nullptr.
  static Heartbeat* running() { return current(); }

  /// Why a wait of this role cannot end; "" if it can.
  [[nodiscard]] std::string vain(Role role) const;
  /// The rank that a timed-out wait of this role was for, as far as known: a rank without a beat for half of
  /// comm.timeout_s, else working_rank().
  [[nodiscard]] std::string awaited(Role role) const;
  /// The first rank whose thread of this role does not wait: "rank 1 on host a (process 12)", or "another rank".
  [[nodiscard]] std::string working_rank(Role role) const;
  /// "rank 1 on host a (process 12)"
  [[nodiscard]] std::string name_of(int rank) const;
  /// A line per rank, at most `most`, the longest unheard first: its name, its position, the time since its last beat.
  [[nodiscard]] std::vector<std::string> positions_of_ranks(std::size_t most) const;
  /// Rounds of the thread. The number stops growing while MPI blocks a second thread.
  [[nodiscard]] std::uint64_t num_rounds() const { return num_rounds_; }

  /// Collective: returns when every rank has called it, with "", or with the reason why a rank did not.
  std::string end();

 private:
  using Table = std::vector<Beat>;
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::shared_ptr<const Table> table;  // kept until sent
  };

  static std::atomic<Heartbeat*>& current();

  void gather_names();
  void run();
  void round(double elapsed_s);
  void receive();
  void expect(int peer);
  void take(int peer);
  void send();
  void send_to(int peer, const std::shared_ptr<const Table>& table);
  void judge();
  [[nodiscard]] bool all_were_heard_again() const;
  void judge_stalls();
  void say_stalled(Role role);
  [[nodiscard]] bool is_over() const;
  /// Whether all ranks end, as far as this rank knows.
  [[nodiscard]] bool do_all_end() const { return table_.front().all_end != 0; }
  /// Whether a message of this rank is its last.
  [[nodiscard]] bool is_last(const Table& sent) const {
    return (rank_ == 0 ? sent.front().all_end : sent.front().ends) != 0;
  }
  [[nodiscard]] double unheard_time(int rank) const;
  [[nodiscard]] std::string unresponsive_rank() const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> names_;

  // Used by the thread alone.
  std::vector<int> peers_;       // on rank 0: all others; on the others: rank 0
  std::vector<Table> incoming_;  // one per peer
  std::vector<MPI_Request> expected_;
  std::vector<Outgoing> outgoing_;     // one per peer
  std::vector<std::uint64_t> judged_;  // each rank's number of beats at the last check for stalls
  double unjudged_s_ = 0.0;            // time since then
  std::array<std::uint64_t, kRoles> progress_ = {};
  std::array<double, kRoles> stalled_s_ = {};
  double without_table_s_ = 0.0;  // except on rank 0: time since the last table

  mutable std::mutex mutex_;  // of the members below, written by the thread alone; never locked in an MPI call
  Table table_;
  std::string unresponsive_;                 // the unheard rank and for how long; "" if none
  std::array<std::string, kRoles> stalled_;  // set once all wait in vain
  std::array<std::atomic<bool>, kRoles> in_vain_ = {};

  std::atomic<std::uint64_t> num_rounds_ = 0;
  std::atomic<bool> ending_ = false;    // end() was called
  std::atomic<bool> stopping_ = false;  // the thread ends at once
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace kozero::distributed
