// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.hpp: the collectives that sharding needs, as a small contract with several back ends.
//   reduce_scatter  slice_r[i] = ((x_0 + x_1) + x_2) + ...  over the ranks' full arrays, in rank order, for i of slice r
//   all_gather      full = slice_0 | slice_1 | ...
// Pointers are device memory of this build (host memory on CPUs); extents come from a core Partition of elements.
// `slice` may be the rank's own part of `full` (in place) and nothing else of it. All ranks call with equal partitions.
// Throws Error(communication) naming rank, peer and collective. Back ends: self, mpi, shm; `counted` decorates any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/partition.hpp>

namespace kozero::dist {

class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The back end's name for the banner: "self", "mpi", "shm".
  [[nodiscard]] virtual std::string name() const = 0;

  /// The MPI communicator of these ranks, as an `MPI_Comm*`, to make another one from.
  [[nodiscard]] virtual const void* mpi_handle() const = 0;

  virtual void reduce_scatter(const float* full, float* slice, const Partition& partition) = 0;
  /// Elements are opaque, `element_size` bytes each.
  virtual void all_gather(const void* slice, void* full, const Partition& partition, std::size_t element_size) = 0;

  // Control traffic: small, in host memory, not counted with the training's bytes.
  virtual void barrier() = 0;
  /// Every rank's values, in rank order (size() * values.size() of them; all ranks pass equally many).
  virtual std::vector<double> gather_control(const std::vector<double>& values) = 0;
  /// Rank 0's bytes on every rank; the others' argument is ignored.
  virtual std::string broadcast_control(const std::string& bytes) = 0;
};

/// The sum of every rank's value, added in rank order.
double sum_in_rank_order(Communicator& comm, double value);

/// Throws on every rank the message of the lowest rank that has one (empty: no error). The ranks agree on the status.
void agree(Communicator& comm, int failure_status, const std::string& message);

}  // namespace kozero::dist
