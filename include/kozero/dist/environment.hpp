// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.hpp: MPI's lifetime in this process, and which process of the job it is.
//   Environment environment(&argc, &argv);   ...   the destructor finalizes
// Asks for MPI_THREAD_MULTIPLE and keeps what was provided. MPI's errors are returned, not fatal: they become
// Error(communication). Without a launcher the job is this one process. Where MPI was up already, it is left up.
// With several ranks and MPI_THREAD_MULTIPLE on all of them a thread tells the other ranks that this one lives
// (src/dist/heartbeat.hpp); another one ends the process where a call of MPI does not return (src/dist/watchdog.hpp).
#pragma once
#include <memory>
#include <string>

namespace kozero::dist {

class Environment {
 public:
  /// `timeout_s`: comm.timeout_s as far as it is known before the ranks can talk.
  Environment(int* argc, char*** argv, double timeout_s = 600.0);
  /// Waits for the other ranks to end too; where one does not, reports it and ends the process.
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// How many ranks share this node's memory, and this one's number among them.
  [[nodiscard]] int local_ranks() const { return local_ranks_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }
  /// How many of them may run on exactly this rank's CPUs, this one counted: 1 where a launcher binds each to its own.
  [[nodiscard]] int cpu_sharers() const { return cpu_sharers_; }
  /// Which of those this rank is, from 0.
  [[nodiscard]] int cpu_sharer() const { return cpu_sharer_; }
  /// Any thread of any rank may call MPI at any time (the I/O thread of asynchronous checkpoints). Equal on all ranks.
  [[nodiscard]] bool thread_multiple() const { return thread_multiple_; }
  /// From now on this rank waits for others so long, where nothing else is said.
  static void obey_timeout(double timeout_s);
  /// All ranks of the job, as an `MPI_Comm*`: for make_communicator.
  [[nodiscard]] const void* world() const;

  /// Name and version of the MPI library, on one line: "MPICH Version: 4.0.2". At any time.
  [[nodiscard]] static std::string library();

  /// MPI is up and other ranks of the job may wait for this one.
  [[nodiscard]] static bool has_peers();
  /// Ends every rank of the job at once: for an error that the other ranks know nothing of.
  [[noreturn]] static void abort(int status);

 private:
  struct Threads;

  void count_ranks_of_node();

  std::unique_ptr<Threads> threads_;
  bool owned_ = false;
  bool thread_multiple_ = false;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;
  int cpu_sharers_ = 1;
  int cpu_sharer_ = 0;
};

}  // namespace kozero::dist
