// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.hpp: the collectives that sharding needs, their options, agreement among ranks, and the two simplest
// communicators: one rank alone, and control traffic alone. The header includes no Kokkos.
//   reduce_scatter  shard_r[i] = ((x_0 + x_1) + x_2) + ...  in rank order
//   all_gather      full = shard_0 | shard_1 | ...
//   deck = agreed(comm, [&] { return io::read_deck(path, overrides); });        one outcome on all ranks
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/core/memory_source.hpp>
#include <kozero/core/parameter_table.hpp>

namespace kozero::dist {

// Which thread of a rank communicates: the main thread, or the one that saves beside it. Each waits for the
// threads of its own role on the other ranks.

enum class Role : std::size_t { training, saver };
inline constexpr std::size_t kRoles = 2;

// The sizes and limits of the back ends, equal on all ranks.

/// Bytes that can still be had for shared memory on this node; 0 where it has none.
std::int64_t free_shared_memory();

/// Bytes of the GPU that nobody has taken; 0 on a host build.
std::int64_t free_device_memory();

/// KOZERO_RANKS_PER_NODE of the environment, 0 where it is not set: so many consecutive ranks of one machine are taken
/// for a node, in tests and experiments.
int simulated_ranks_per_node();

/// One line on stderr.
void print_notice(const std::string& line);

/// Whether communicators of several ranks compare what the ranks call (communicator_decorators.hpp), where nothing is
/// said.
#if defined(NDEBUG)
inline constexpr bool kChecksCalls = false;
#else
inline constexpr bool kChecksCalls = true;
#endif

struct CommunicatorOptions {
  double timeout_s = 600.0;      ///< comm.timeout_s: how long a rank waits for another one
  std::uint64_t under_way = 16;  ///< most collectives from the oldest unfinished one to the newest
  bool checks_calls = kChecksCalls;
  bool deterministic = true;                           ///< run.deterministic: nothing that may change a bit
  bool exact = false;                                  ///< comm.exact: nccl adds in rank order too
  std::int64_t exact_bytes = std::int64_t{64} << 20;   ///< of the GPU's memory, for addends received meanwhile
  std::int64_t chunk_bytes = std::int64_t{4} << 20;    ///< of each of the two buffers that data passes through
  std::int64_t message_bytes = std::int64_t{1} << 30;  ///< of the largest message: MPI counts in int
  /// 0: those that share memory are on one node. Of a plan: all ranks are on one.
  int ranks_per_node = simulated_ranks_per_node();
  int communicators = 1;  ///< of the job: shm is to have room for as many, nccl orders them
  std::string shm_folder = "/dev/shm";                 ///< where shared arrays lie
  std::function<std::int64_t()> shm_free_bytes = free_shared_memory;
  std::function<std::int64_t()> free_device_bytes = free_device_memory;
  std::function<void(const std::string&)> notice = print_notice;  ///< called on rank 0
};

// The collectives that sharding needs, as a small contract with several back ends.
//   reduce_scatter  shard_r[i] = ((x_0 + x_1) + x_2) + ...  over the ranks' full arrays, in rank order, i of shard r;
//                   or onto what the shard holds: shard_r[i] = ((shard_r[i] + x_0) + x_1) + ...
//   all_gather      full = shard_0 | shard_1 | ...
// Pointers are device memory of this build (host memory on CPUs); extents come from a core Partition of elements.
// `shard` may be the rank's own part of `full` (in place) and nothing else of it. All ranks call with equal partitions.
// Each comes in parts, so that a rank need not wait for the slowest one at once:
//   start                 hands the arguments over: until wait, the full array and the shard are the collective's
//   wait                  the result is there
//   wait_until_reusable   no peer reads the shard or the full array any more: both may be written again
// All ranks call all of these in one order. On a device the parts are ordered on streams, and the host does not wait.
// share(label, bytes), collective, gives memory that peers read where it lies, or nullptr: arguments in it (on all
// ranks at once, in the same array) save the copies through buffers; any other memory will do.
// Throws Error(communication) naming rank, peer and collective. Back ends: self, mpi, shm, nccl;
// `counted` decorates any.

enum class Collective : int { reduce_scatter, all_gather };

/// What a reduce_scatter adds up, in this order: what the shard holds, where `onto`; then the arrays of the first
/// `ranks` ranks. All ranks get their sums, and pass equal folds.
struct Fold {
  int ranks = 0;      ///< 0: all
  bool onto = false;  ///< not in place: the shard lies apart from every full array

  [[nodiscard]] int num_ranks(int size) const { return ranks == 0 ? size : ranks; }
};

/// A collective that was started.
struct Pending {
  Collective collective;
  std::uint64_t ticket = 0;  ///< the back end's number of it
};

class Communicator : public MemorySource {
 public:
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The back end's name for the banner: "self", "mpi", "shm", "nccl".
  [[nodiscard]] virtual std::string name() const = 0;

  /// How the data travel, for the banner.
  [[nodiscard]] virtual std::string description() const { return name(); }
  /// Whether sums are as above. Where not, all ranks' arrays are added in an order of the back end's own, and a Fold
  /// must be the default one.
  [[nodiscard]] virtual bool adds_in_order() const { return true; }

  // A back end that cannot wait for later does everything in start.
  virtual Pending start_reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold) = 0;
  /// Elements are opaque, `element_size` bytes each.
  virtual Pending start_all_gather(const void* shard, void* full, const Partition& partition,
                                   std::size_t element_size) = 0;
  virtual void wait(Pending /*pending*/) {}
  /// After wait. A second call does nothing.
  virtual void wait_until_reusable(Pending /*pending*/) {}
  void* share(const std::string& /*label*/, std::int64_t /*bytes*/) override { return nullptr; }
  /// Whether it helps that the full arrays of all-gathers are from share(), too.
  [[nodiscard]] virtual bool shares_gathered() const { return false; }

  void reduce_scatter(const float* full, float* shard, const Partition& partition, Fold fold = {}) {
    complete(start_reduce_scatter(full, shard, partition, fold));
  }
  void all_gather(const void* shard, void* full, const Partition& partition, std::size_t element_size) {
    complete(start_all_gather(shard, full, partition, element_size));
  }

  // Control traffic: small, in host memory, not counted with the training's bytes.
  virtual void barrier() = 0;
  /// Every rank's bytes, in rank order: size() * mine.size() of them. All ranks pass equally many.
  virtual std::vector<std::byte> gather_control(std::span<const std::byte> mine) = 0;
  /// Rank 0's bytes on every rank; the others' argument is ignored.
  virtual std::string broadcast_control(const std::string& bytes) = 0;

 private:
  void complete(Pending pending) {
    wait(pending);
    wait_until_reusable(pending);
  }
};

/// Every rank's values, in rank order; all ranks pass equally many. T: numbers, or a struct of numbers.
template <class T>
  requires std::is_trivially_copyable_v<T>
std::vector<T> from_all_ranks(Communicator& comm, const std::vector<T>& mine) {
  const std::vector<std::byte> bytes = comm.gather_control(std::as_bytes(std::span(mine)));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}
/// The same of one value each.
template <class T>
  requires std::is_trivially_copyable_v<T>
std::vector<T> from_all_ranks(Communicator& comm, const T& mine) {
  return from_all_ranks(comm, std::vector<T>{mine});
}

/// Rank 0's value on every rank; the others' argument is ignored.
template <class T>
  requires std::is_trivially_copyable_v<T>
T broadcast_value(Communicator& comm, const T& value) {
  const std::string bytes = comm.broadcast_control(std::string(reinterpret_cast<const char*>(&value), sizeof(T)));
  require(bytes.size() == sizeof(T), "broadcast_value: rank 0 sent a value of another size");
  T first = value;
  std::memcpy(&first, bytes.data(), sizeof(T));
  return first;
}

/// Every rank's text, in rank order.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text);

/// Throws on every rank the status and message of the lowest rank whose status is not 0, whatever its message.
void agree(Communicator& comm, int status, const std::string& message);

// Work that every rank does and may fail at, with one outcome for all.
//   deck = agreed(comm, [&] { return io::read_deck(path, overrides); });
// Where any rank throws, every rank throws that of the lowest such rank, seen by all: nobody is left waiting.

/// What came of this rank's work: a result, or the exit status and text of what it threw.
template <class Result>
struct Attempt {
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  int status = 0;
  std::string message;
};

template <class Work>
auto attempted(const Work& work) {
  using Result = std::invoke_result_t<Work>;
  Attempt<Result> attempt;
  try {
    if constexpr (std::is_void_v<Result>) {
      work();
    } else {
      attempt.result.emplace(work());
    }
  } catch (const Error& error) {
    attempt.status = error.exit_status();
    attempt.message = error.what();
  } catch (const std::exception& error) {
    attempt.status = static_cast<int>(Failure::internal);
    attempt.message = error.what();
  } catch (...) {
    attempt.status = static_cast<int>(Failure::internal);
    attempt.message = "an exception of unknown type";
  }
  return attempt;
}

/// The ranks agree on attempts made before they could talk.
template <class Result>
Result agreed(Communicator& comm, Attempt<Result> attempt) {
  agree(comm, attempt.status, attempt.message);
  if constexpr (!std::is_void_v<Result>) return std::move(*attempt.result);
}

template <class Work>
requires std::is_invocable_v<Work>
auto agreed(Communicator& comm, const Work& work) { return agreed(comm, attempted(work)); }

/// work(i) -> a number or a struct of numbers, for i in [0, items); rank i mod n does item i, and every rank gets all
/// results in order. They do not depend on the number of ranks. Throws what any rank's work throws, seen by all ranks.
template <class Work>
auto map_over_ranks(Communicator& comm, std::size_t items, const Work& work) {
  using Result = std::invoke_result_t<Work, std::size_t>;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t rounds = (items + ranks - 1) / ranks;
  const auto mine = agreed(comm, [&] {
    std::vector<Result> results(rounds);
    for (std::size_t i = static_cast<std::size_t>(comm.rank()); i < items; i += ranks) results[i / ranks] = work(i);
    return results;
  });
  const std::vector<Result> all = from_all_ranks(comm, mine);
  std::vector<Result> in_order;
  for (std::size_t i = 0; i < items; ++i) in_order.push_back(all[i % ranks * rounds + i / ranks]);
  return in_order;
}

/// The text that rank 0's work returns, on every rank; where it throws, every rank throws that. What ranks must not see
/// differently (which file is the newest, what its header says) is looked at once.
template <class Work>
std::string from_first_rank(Communicator& comm, const Work& work) {
  const std::string mine = agreed(comm, [&] { return comm.rank() == 0 ? std::string(work()) : std::string(); });
  return comm.broadcast_control(mine);
}

// The communicator of one rank alone. Both collectives are a copy; in place, nothing.
// Reads and writes device memory, and makes no MPI call.

std::unique_ptr<Communicator> make_self_communicator();

// Control traffic alone, for agreements about work of any length.
// A duplicate of the ranks' MPI communicator, so that no message meets the trainer's, and no buffers. A waiting rank
// sleeps between two looks instead of taking the trainer's core. Data collectives throw Error(internal).
// Where the ranks are all of the job's and Environment::thread_multiple(), a wait goes on as long as they live,
// whatever they do meanwhile, and ends in Error(communication) once a rank gave no sign of life for comm.timeout_s, or
// all ranks wait for one another that long. Other waits end after `timeout_s`, or io_timeout_s where that is longer.

struct ControlUse {
  Role role = Role::training;  ///< which thread waits
  /// > 0: a wait for ranks that live ends after so many seconds too, in Error(write): what they do is writing.
  double io_timeout_s = 0.0;
  bool checks_calls = kChecksCalls;
};

/// Collective over `mpi_comm` (an `MPI_Comm*`); of one rank it makes no MPI call later. Several ranks need
/// Environment::thread_multiple() where another thread than the trainer's uses it.
std::unique_ptr<Communicator> make_control_communicator(const void* mpi_comm, double timeout_s, ControlUse use = {});

/// Whether this process's thread of that role waits for other ranks now.
bool is_waiting(Role role);

/// For waits outside collectives: throws Error(communication) naming the rank once a rank gave no sign of life for
/// comm.timeout_s. `what` names the awaited event, `waited_s` the seconds so far. Does nothing without a heartbeat.
void require_live_ranks(const char* what, double waited_s);

}  // namespace kozero::dist
