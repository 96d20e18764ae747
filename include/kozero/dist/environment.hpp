// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.hpp: the lifetime of MPI in this process, and the process's rank, node and launcher.
//   Environment environment(&argc, &argv);   ...   the destructor finalizes MPI
// Errors of MPI become Error(communication). Without a launcher the job is this one process.
#pragma once
#include <functional>
#include <memory>
#include <string>

namespace kozero::dist {

// What the environment of this process says of the job that it was started in.

/// This process's rank: MPI's, or before MPI is up the one that the launcher's environment names, else 0. For messages
/// that may be due before MPI is up, or by a thread that must not call it.
int known_rank();
/// MPI's rank, which known_rank() returns from now on.
void set_rank(int rank);

/// The value of an environment variable, or nullptr, as std::getenv.
using Variables = std::function<const char*(const char* name)>;

/// Which variable says that this process is one of several, as "PMI_SIZE = 4"; "" where none does. Slurm's count is
/// that of the step which this process is a task of: SLURM_NTASKS alone, as in an salloc shell, says nothing of it. An
/// MPI launcher's own variable counts more than Slurm's, whose step may hold that launcher.
std::string launcher_world_size(const Variables& variables);

/// SLURM_NTASKS, where no launcher started this process; 0 where one did, or where there is one task.
int unused_slurm_tasks(const Variables& variables);

// MPI's lifetime in this process, and which process of the job it is.
//   Environment environment(&argc, &argv);   ...   the destructor finalizes
// Asks for MPI_THREAD_MULTIPLE and keeps what was provided. MPI's errors are returned, not fatal: they become
// Error(communication). Without a launcher the job is this one process. Where MPI was up already, it is left up.
// With several ranks and MPI_THREAD_MULTIPLE on all of them a thread tells the other ranks that this one lives
// (src/dist/heartbeat.hpp); another one ends the process where a call of MPI does not return (src/dist/watchdog.hpp).

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

/// The ranks of a communicator that give one number, as a communicator of their own, in their order. Collective over
/// `mpi_comm`, an `MPI_Comm*`.
class RanksOfColor {
 public:
  /// color < 0: this rank is in none.
  RanksOfColor(const void* mpi_comm, int color);
  ~RanksOfColor();
  RanksOfColor(const RanksOfColor&) = delete;
  RanksOfColor& operator=(const RanksOfColor&) = delete;

  /// Whether this rank is one of them.
  [[nodiscard]] bool contain_me() const { return comm_ != nullptr; }
  /// As an `MPI_Comm*`, where this rank is one of them.
  [[nodiscard]] const void* handle() const { return comm_.get(); }

 private:
  std::shared_ptr<void> comm_;
};

/// The first ranks of a communicator.
class FirstRanks final : public RanksOfColor {
 public:
  FirstRanks(const void* mpi_comm, int ranks);
};

}  // namespace kozero::dist
