// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.hpp: the start of Kokkos with this rank's threads and GPU, and the tuned matrix products of run.tuning.
// Threads are bound to the rank's share of the node's cores and flush denormals. On a GPU build rank r of a node gets
// GPU r modulo their number. All ranks use rank 0's tuning file.
#pragma once
#include <Kokkos_Core.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/host.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/environment.hpp>
#include "io/deck/deck.hpp"
#include "io/deck/tuning_file.hpp"

namespace kozero::train {

// How many threads a rank gets, and on which CPUs each of them stays.
//   cores that k ranks may use alike are cut into k equal, contiguous shares; where each rank was given its own, k = 1
//   threads = what was asked for, else one a core of the share      thread i of t: cores [i n / t, (i + 1) n / t) of n
// A thread that has cores to itself is bound to them; nobody is bound where there are more threads than cores, where
// OMP_PROC_BIND=false says so, or where OpenMP has bound the threads inside a launcher's share already.

/// What is known before any thread is there.
struct Surroundings {
  std::vector<CpuSet> cores;   ///< that this process may use
  int sharers = 1;             ///< ranks of this node that may use exactly these, this one counted
  int sharer = 0;              ///< which of them this is
  int asked_threads = 0;       ///< run.threads, else OMP_NUM_THREADS; 0: neither
  std::string proc_bind = {};  ///< OMP_PROC_BIND, "" where it is not set
};

struct ThreadPlacement {
  int threads = 1;
  std::vector<CpuSet> cpus = {};  ///< by thread; empty: not bound by us
  std::string text = {};          ///< "1 thread bound to CPU 0, of 0-1 shared by 2 ranks"
  std::string crowding = {};      ///< where the ranks have more threads than cores: the numbers and what to do
};

ThreadPlacement thread_placement(const Surroundings& surroundings);

// Kokkos with this rank's threads, each where it stays, flushing denormals, and on a GPU build with its
// GPU: rank r of a node has the GPU r modulo their number.
// Denormal moments slow AdamW tenfold, so flush to zero is set on every thread (FTZ and DAZ; FZ on Arm), always:
// results depend on them.

class Runtime {
 public:
  /// `threads` of this rank; 0: OMP_NUM_THREADS, or else the cores of its share.
  /// They are bound as ThreadPlacement says.
  Runtime(std::int64_t threads, const dist::Environment& environment);

  [[nodiscard]] int threads() const { return placement_.threads; }
  /// "2 threads bound to CPUs 0-1", and the GPU.
  [[nodiscard]] const std::string& placement() const { return placement_.text; }
  /// ThreadPlacement::crowding; "" where arrays lie on a GPU.
  [[nodiscard]] std::string crowding() const;

 private:
  void bind_threads();

  ThreadPlacement placement_;
  std::optional<Kokkos::ScopeGuard> kokkos_;
};

// Run.tuning: the products of this process go by a tuning file (io/deck/tuning_file.hpp).

/// A tuning file for this device and library, with no products.
io::TuningFile tuning_of_this_device();

/// Rank 0 reads the file that run.tuning names, and every rank's products go by it; by the rule without one. Returns
/// the file's text. Collective. Throws Error(input), seen by all ranks: where it cannot be read, is damaged, was made
/// for another device or library, or names an algorithm that is not here.
std::string apply_tuning(const io::Deck& deck, dist::Communicator& comm);

}  // namespace kozero::train
