// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heartbeat.hpp: a thread that tells the other ranks a few times a second that this one lives, and where it is.
//   every rank --Beat--> rank 0 --Beats of all--> every rank      every 0.25 s, or comm.timeout_s / 8 where that is
//   less
// So a wait for work of any length (rank 0 prepares a large text) goes on while all ranks live, and ends
//   once a rank gave no sign of life for comm.timeout_s, or
//   once every rank waits and no wait began or ended for comm.timeout_s: they wait for each other in vain. Rank 0 finds
//   that and tells all, for good.
// A rank that ends says so, and ends when all have: who waits for it then learns that it will not come.
// Needs MPI_THREAD_MULTIPLE. Between two beats the thread sleeps. A send that a suspended rank does not take is not
// repeated, so that nothing piles up. Times are those of wait_clock.hpp.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <kozero/dist/communicator.hpp>
#include <kozero/dist/wait_clock.hpp>
#include "src/dist/watchdog.hpp"

namespace kozero::dist {

class Heartbeat {
 public:
  /// Collective over `world`, of several ranks.
  explicit Heartbeat(MPI_Comm world);
  /// Without end() the others hear of this rank no more.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// This process's, or nullptr.
  static Heartbeat* running() { return current(); }

  /// Why a thread of this role waits in vain; "" while it does not.
  [[nodiscard]] std::string vain(Role role) const;
  /// Whom a wait of this role that ended by its own time was for, as far as is known: a rank that gives no sign of
  /// life, or else those that do not wait themselves.
  [[nodiscard]] std::string awaited(Role role) const;
  /// The first rank whose thread of this role does not wait: "rank 1 on host a (process 12)", or "another rank".
  [[nodiscard]] std::string working_rank(Role role) const;
  /// "rank 1 on host a (process 12)"
  [[nodiscard]] std::string name_of(int rank) const;
  /// A line for each rank, at most `most`, those unheard longest first: its name, where it is, when it was heard of.
  [[nodiscard]] std::vector<std::string> positions_of_ranks(std::size_t most) const;
  /// How often the thread has looked. The number stops growing while MPI lets no second thread in.
  [[nodiscard]] std::uint64_t num_rounds() const { return num_rounds_; }

  /// Collective: returns when every rank calls it. Why not, or "".
  std::string end();

 private:
  using Table = std::vector<Beat>;
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::shared_ptr<const Table> table;  // what travels, until it has
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
  [[nodiscard]] double unheard_time(int rank) const;
  [[nodiscard]] std::string unresponsive_rank() const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> names_;

  // The thread's own.
  std::vector<int> peers_;       // rank 0's: all others; the others': rank 0
  std::vector<Table> incoming_;  // one a peer
  std::vector<MPI_Request> expected_;
  std::vector<Outgoing> outgoing_;     // one a peer
  std::vector<std::uint64_t> judged_;  // each rank's number of beats when stalls were looked for last
  double unjudged_s_ = 0.0;            // since then
  std::array<std::uint64_t, kRoles> progress_ = {};
  std::array<double, kRoles> stalled_s_ = {};
  double without_table_s_ = 0.0;  // others than rank 0: since a table came

  mutable std::mutex mutex_;  // of what follows, which the thread alone writes; never held in a call of MPI
  Table table_;
  std::string unresponsive_;                 // which rank is, and for how long; "" where none is
  std::array<std::string, kRoles> stalled_;  // once all wait in vain
  std::array<std::atomic<bool>, kRoles> in_vain_ = {};

  std::atomic<std::uint64_t> num_rounds_ = 0;
  std::atomic<bool> ending_ = false;    // end() was called
  std::atomic<bool> stopping_ = false;  // the thread leaves at once
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace kozero::dist
