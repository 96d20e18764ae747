// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.hpp: the collectives that sharding needs, their options, and the two simplest communicators: for one
// rank, and for control traffic only. The header includes no Kokkos.
//   reduce_scatter  shard_r[i] = ((x_0 + x_1) + x_2) + ...  over the ranks' full arrays, in rank order, i of shard r;
//                   or onto the shard's values: shard_r[i] = ((shard_r[i] + x_0) + x_1) + ...
//   all_gather      full = shard_0 | shard_1 | ...
// Pointers are device memory of this build (host memory on CPUs); extents come from a core Partition of elements.
// `shard` is either the rank's own part of `full` (in place) or disjoint from `full`. All ranks pass equal partitions.
// A collective is split into three calls, so that a rank need not wait at once for the slowest rank:
//   start                 starts the collective, which owns the full array and the shard until wait
//   wait                  returns when the result is complete
//   wait_until_reusable   returns when no peer reads the shard or the full array: both may be written again
// All ranks make these calls in the same order. On a device the calls order work on streams, and the host does not
// wait. share(label, bytes), collective, returns memory that peers read directly, or nullptr. Arguments in shared
// memory (on all ranks, in the same array) save the copies through buffers; arguments in any other memory work too.
// Throws Error(communication) naming rank, peer and collective. Decorators (communicator_decorators.hpp) wrap any back
// end.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/memory_source.hpp>
#include <kozero/core/parameter_table.hpp>

namespace kozero::distributed {

class Ranks;  // environment.hpp

/// Which thread of a rank communicates: the main thread, or the thread that saves checkpoints. A thread waits for
/// the threads of the same role on the other ranks.
enum class Role : std::size_t { training, saver };
inline constexpr std::size_t kRoles = 2;

/// The names of comm.backend: auto, and the rows of make_communicator.cpp.
const std::vector<std::string>& backend_names();

/// Free bytes of this node's shared memory (/dev/shm); 0 if the node has none.
std::int64_t free_shared_memory();

/// Free bytes of the GPU's memory; 0 on a host build.
std::int64_t free_device_memory();

/// The environment variable KOZERO_RANKS_PER_NODE; 0 if it is not set. Tests and experiments use it to treat groups
/// of consecutive ranks on one machine as nodes.
int simulated_ranks_per_node();

/// Prints one line on stderr.
void print_notice(const std::string& line);

/// Default of CommunicatorOptions::checks_calls: whether the ranks compare the collectives that they call
/// (communicator_decorators.hpp).
#if defined(NDEBUG)
inline constexpr bool kChecksCalls = false;
#else
inline constexpr bool kChecksCalls = true;
#endif

struct CommunicatorOptions {
  double timeout_s = 600.0;      ///< comm.timeout_s: how long a rank waits for another rank
  std::uint64_t under_way = 16;  ///< most collectives from the oldest unfinished one to the newest
  bool checks_calls = kChecksCalls;
  bool deterministic = true;                           ///< run.deterministic: exclude what may change result bits
  bool exact = false;                                  ///< comm.exact: nccl and ring, too, add in rank order
  std::int64_t exact_bytes = std::int64_t{64} << 20;   ///< with `exact`: most GPU memory for received addends
  std::int64_t chunk_bytes = std::int64_t{4} << 20;    ///< size of each of the two transfer buffers
  std::int64_t message_bytes = std::int64_t{1} << 30;  ///< largest message; MPI counts in int
  /// 0: ranks that share memory are on one node; when planning, all ranks are assumed to share one node.
  int ranks_per_node = simulated_ranks_per_node();
  double throttle_gbit = 0.0;           ///< comm.throttle_gbit: rate of a simulated link, 10^9 bits per second; 0: none
  double latency_us = 0.0;              ///< comm.latency_us: of a collective on a simulated link
  int communicators = 1;                ///< of this job: shm checks the room for all, nccl orders their use
  std::string shm_folder = "/dev/shm";  ///< folder of the shared arrays
  std::function<std::int64_t()> shm_free_bytes = free_shared_memory;
  std::function<std::int64_t()> free_device_bytes = free_device_memory;
  std::function<void(const std::string&)> notice = print_notice;  ///< called on rank 0
};

enum class Collective : int { reduce_scatter, all_gather };

/// The addends of a reduce_scatter, in order: with `onto`, first the shard's values; then the full arrays of the first
/// `ranks` ranks. Every rank receives the sum of its own shard. All ranks pass equal folds.
struct Fold {
  int ranks = 0;      ///< 0: all
  bool onto = false;  ///< the shard must be disjoint from every full array

  [[nodiscard]] int num_ranks(int size) const { return ranks == 0 ? size : ranks; }
};

/// A collective that was started.
struct Pending {
  Collective collective;
  std::uint64_t ticket = 0;  ///< the back end's number for the collective
  std::uint64_t number = 0;  ///< of the CountedCommunicator's collectives, from 1, for events; 0: not counted
  std::chrono::steady_clock::time_point earliest_end = {};  ///< when a simulated link has sent the bytes
};

class Communicator : public MemorySource {
 public:
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The back end's name for the banner: "self", "mpi", "shm", "nccl", "ring".
  [[nodiscard]] virtual std::string name() const = 0;

  /// How data are transferred, for the banner.
  [[nodiscard]] virtual std::string description() const { return name(); }
  /// Whether reduce_scatter adds in rank order. Otherwise the back end chooses the order, adds all ranks' arrays, and
  /// accepts only the default Fold.
  [[nodiscard]] virtual bool adds_in_order() const { return true; }
  /// Seconds that this rank has waited in collectives for other ranks, before they offered their arrays or had read
  /// this rank's. nullopt if the back end cannot separate waiting from the transfer of bytes.
  [[nodiscard]] virtual std::optional<double> waited_s() const { return std::nullopt; }

  // A back end without asynchronous transfers completes the collective in start.
  virtual Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) = 0;
  /// Elements are opaque, `element_size` bytes each.
  virtual Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                                   std::size_t element_size) = 0;
  virtual void wait(Pending /*pending*/) {}
  /// After wait. A second call does nothing.
  virtual void wait_until_reusable(Pending /*pending*/) {}
  void* share(const std::string& /*label*/, std::int64_t /*bytes*/) override { return nullptr; }
  /// Whether all-gathers are faster when their full arrays come from share().
  [[nodiscard]] virtual bool shares_gathered() const { return false; }

  void reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold = {}) {
    complete(start_reduce_scatter(full, shard, partition, fold));
  }
  void all_gather(const void* shard, void* full, const Partition& partition, std::size_t element_size) {
    complete(start_all_gather(shard, full, partition, element_size));
  }

  // Control traffic: small messages in host memory, not counted with the bytes of training.
  virtual void barrier() = 0;
  /// Every rank's bytes, in rank order: size() * mine.size() bytes. All ranks pass the same number of bytes.
  virtual std::vector<std::byte> gather_control(std::span<const std::byte> mine) = 0;
  /// Sums over the ranks, element by element, modulo 2^64: the same in any order. All ranks pass equally many numbers.
  /// A rank receives as many bytes as it passes, so use this instead of gather_control where the sum suffices.
  virtual std::vector<std::uint64_t> sum_control(std::span<const std::uint64_t> mine);
  /// Rank 0's bytes on every rank; the others' argument is ignored.
  virtual std::string broadcast_control(const std::string& bytes) = 0;

 private:
  void complete(Pending pending) {
    wait(pending);
    wait_until_reusable(pending);
  }
};

/// The communicator of a single rank. A collective is a copy, or in place no work; with Fold::onto, an addition.
/// Reads and writes device memory, and makes no MPI call.
std::unique_ptr<Communicator> make_self_communicator();

struct ControlUse {
  Role role = Role::training;  ///< which thread waits
  /// > 0: a wait for live ranks, which are writing, ends in Error(write) after this many seconds.
  double io_timeout_s = 0.0;
  bool checks_calls = kChecksCalls;
};

/// A communicator for control traffic alone, for agreements about work of any length. Collective over `ranks`.
/// It duplicates the ranks' MPI communicator, so that its messages never match the trainer's, and has no buffers. A
/// waiting saver thread sleeps between polls and leaves the core to the trainer. Data collectives throw
/// Error(internal). If the communicator spans the job and Environment::thread_multiple() is true, a wait lasts as long
/// as all ranks live. It ends in Error(communication) once a rank gave no sign of life for comm.timeout_s, or all ranks
/// have waited for one another that long. Any other wait ends after the longer of `timeout_s` and io_timeout_s. The
/// communicator of a single rank makes no further MPI call. With several ranks, a thread other than the trainer's may
/// use the communicator only if Environment::thread_multiple() is true.
std::unique_ptr<Communicator> make_control_communicator(const Ranks& ranks, double timeout_s, ControlUse use = {});

/// Whether this process's thread of `role` is waiting for other ranks now.
bool is_waiting(Role role);

/// For waits outside collectives: throws Error(communication) naming a rank that gave no sign of life for
/// comm.timeout_s, or saying that all ranks have waited for one another that long. `what` names the awaited event,
/// `waited_s` the seconds so far. Does nothing without a heartbeat.
void require_live_ranks(const char* what, double waited_s);

}  // namespace kozero::distributed
