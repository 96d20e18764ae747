// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// environment.hpp: the lifetime of MPI in this process, and the process's rank, node and launcher.
//   Environment environment(&argc, &argv);   ...   the destructor finalizes MPI
// Requests MPI_THREAD_MULTIPLE and records what was provided. MPI's errors are returned, not fatal: they become
// Error(communication). Without a launcher the job is this one process. If MPI was initialized already, the destructor
// does not finalize it. With several ranks and MPI_THREAD_MULTIPLE on all of them, a thread sends signs of life to the
// other ranks (src/distributed/liveness/heartbeat.hpp). A watchdog thread ends the process if an MPI call does not
// return (src/distributed/liveness/watchdog.hpp).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace kozero::distributed {

/// The ranks of an MPI communicator, for headers without mpi.h. A copy denotes the same communicator, which its owner
/// must keep: Environment or RanksOfColor. ranks_of() and mpi_comm() of src/distributed/group_communicator.hpp convert.
class Ranks {
 public:
  Ranks() = default;
  Ranks(std::uintptr_t handle, int rank, int size) : handle_(handle), rank_(rank), size_(size) {}

  /// This process's rank in the communicator.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// The bytes of the `MPI_Comm`.
  [[nodiscard]] std::uintptr_t handle() const { return handle_; }

 private:
  std::uintptr_t handle_ = 0;
  int rank_ = 0;
  int size_ = 0;
};

/// This process's rank: MPI's rank, or before MPI is initialized the rank in the launcher's variables, else 0. For
/// messages printed before MPI is initialized, or by a thread that must not call MPI.
int known_rank();

/// The value of an environment variable, or nullptr, as std::getenv.
using Variables = std::function<const char*(const char* name)>;

/// The variable that shows that this process is one of several, as "PMI_SIZE = 4"; "" if none does. For Slurm only
/// the task count of this process's own job step counts: SLURM_NTASKS alone, as in an salloc shell, does not describe
/// this process. An MPI launcher's variables take precedence over Slurm's, since the launcher may run inside a Slurm
/// step.
std::string launcher_world_size(const Variables& variables);

/// SLURM_NTASKS if no launcher started this process; 0 if a launcher did, or if there is only one task.
int unused_slurm_tasks(const Variables& variables);

class Environment {
 public:
  /// `timeout_s`: comm.timeout_s, if it is known before the ranks agree on the deck.
  Environment(int* argc, char*** argv, double timeout_s = 600.0);
  /// A process alone, without MPI. Its rank is known_rank(), so that only one of several processes prints.
  struct WithoutMpi {};
  explicit Environment(WithoutMpi);
  /// Waits for the other ranks to end too. If a rank does not end, reports the rank and ends the process.
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// How many ranks share this node's memory, and this rank's number among them.
  [[nodiscard]] int local_ranks() const { return local_ranks_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }
  /// How many ranks of this node may run on exactly this rank's CPUs, this rank included: 1 if a launcher binds each
  /// rank to its own CPUs.
  [[nodiscard]] int cpu_sharers() const { return cpu_sharers_; }
  /// This rank's number among the ranks with the same CPUs, from 0.
  [[nodiscard]] int cpu_sharer() const { return cpu_sharer_; }
  /// Whether any thread may call MPI at any time (the I/O thread of asynchronous checkpoints does). Equal on all ranks.
  [[nodiscard]] bool thread_multiple() const { return thread_multiple_; }
  /// Sets how long this rank waits for other ranks, for waits without a time limit of their own.
  static void obey_timeout(double timeout_s);
  /// All ranks of the job.
  [[nodiscard]] Ranks world() const;

  /// Name and version of the MPI library, on one line: "MPICH Version: 4.0.2". May be called at any time.
  [[nodiscard]] static std::string library();

  /// Whether MPI is initialized and the job has other ranks, which may wait for this rank.
  [[nodiscard]] static bool has_peers();
  /// Ends every rank of the job at once, after an error that only this rank has seen.
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

/// A new communicator of the ranks of `parent` that pass the same color, in their order. Collective.
class RanksOfColor {
 public:
  /// color < 0: this rank joins no new communicator.
  RanksOfColor(const Ranks& parent, int color);
  /// Frees the communicator.
  ~RanksOfColor();
  RanksOfColor(const RanksOfColor&) = delete;
  RanksOfColor& operator=(const RanksOfColor&) = delete;

  /// Whether this rank is in the new communicator.
  [[nodiscard]] bool contain_me() const { return ranks_.size() > 0; }
  /// Of size 0 if this rank is not in the new communicator.
  [[nodiscard]] const Ranks& ranks() const { return ranks_; }

 private:
  Ranks ranks_;
};

/// A new communicator of the first `count` ranks of `parent`.
class FirstRanks final : public RanksOfColor {
 public:
  FirstRanks(const Ranks& parent, int count);
};

}  // namespace kozero::distributed
