// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.hpp: the collectives that sharding needs, as a small contract with several back ends.
//   reduce_scatter  slice_r[i] = ((x_0 + x_1) + x_2) + ...  over the ranks' full arrays, in rank order, i of slice r
//   all_gather      full = slice_0 | slice_1 | ...
// Pointers are device memory of this build (host memory on CPUs); extents come from a core Partition of elements.
// `slice` may be the rank's own part of `full` (in place) and nothing else of it. All ranks call with equal partitions.
// Each comes in parts, so that a rank need not wait for the slowest one at once:
//   start    hands the arguments over; the result is not there, and the full array and the slice are the collective's
//   finish   the result is there
//   reclaim  the peers have read what was handed over: it may be written again
// All ranks call all of these in one order. On a device the parts are ordered on streams, and the host does not wait.
// share(label, bytes), collective, gives memory that peers read where it lies, or nullptr: arguments in it (on all
// ranks at once, in the same array) save the copies through buffers; any other memory will do.
// Throws Error(communication) naming rank, peer and collective. Back ends: self, mpi, shm, nccl;
// `counted` decorates any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/memory_source.hpp>
#include <kozero/core/partition.hpp>

namespace kozero::dist {

enum class Collective : int { reduce_scatter, all_gather };

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

  // A back end that cannot wait for later does everything in start.
  virtual Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) = 0;
  /// Elements are opaque, `element_size` bytes each.
  virtual Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                                   std::size_t element_size) = 0;
  virtual void finish(Pending /*pending*/) {}
  /// After finish. Nothing where it was done before.
  virtual void reclaim(Pending /*pending*/) {}
  void* share(const std::string& /*label*/, std::int64_t /*bytes*/) override { return nullptr; }

  void reduce_scatter(const float* full, float* slice, const Partition& partition) {
    complete(start_reduce_scatter(full, slice, partition));
  }
  void all_gather(const void* slice, void* full, const Partition& partition, std::size_t element_size) {
    complete(start_all_gather(slice, full, partition, element_size));
  }

  // Control traffic: small, in host memory, not counted with the training's bytes.
  virtual void barrier() = 0;
  /// Every rank's values, in rank order (size() * values.size() of them; all ranks pass equally many).
  virtual std::vector<double> gather_control(const std::vector<double>& values) = 0;
  /// Rank 0's bytes on every rank; the others' argument is ignored.
  virtual std::string broadcast_control(const std::string& bytes) = 0;

 private:
  void complete(Pending pending) {
    finish(pending);
    reclaim(pending);
  }
};

/// The sum of every rank's value, added in rank order.
double sum_in_rank_order(Communicator& comm, double value);

/// Every rank's text, in rank order.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text);

/// Throws on every rank the status and message of the lowest rank whose status is not 0, whatever its message.
void agree(Communicator& comm, int status, const std::string& message);

}  // namespace kozero::dist
