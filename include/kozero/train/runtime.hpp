// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.hpp: the start of Kokkos with this rank's threads and GPU, and the tuned matrix products of run.tuning.
// Threads are bound to the rank's share of the node's cores (run.bind) and flush denormals. On a GPU build rank r of a
// node gets GPU r modulo the number of GPUs. All ranks use rank 0's tuning file.
#pragma once
#include <Kokkos_Core.hpp>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/host.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/distributed/environment.hpp>
#include "io/deck/deck.hpp"
#include "io/deck/tuning_file.hpp"

namespace kozero::train {

/// run.bind: whether threads are bound to the rank's share of the cores.
enum class Bind { share, none };

/// The inputs to the placement, known before threads are created.
struct Surroundings {
  std::vector<CpuSet> cores;   ///< cores that this process may use
  int sharers = 1;             ///< ranks of this node that may use exactly these cores, this rank included
  int sharer = 0;              ///< this rank's number among them
  int asked_threads = 0;       ///< run.threads, else OMP_NUM_THREADS; 0: neither
  std::string proc_bind = {};  ///< OMP_PROC_BIND, "" if it is not set
  Bind bind = Bind::share;
};

/// The number of threads of a rank, and the CPUs to which each thread is bound.
///   share   = cores that k ranks may use alike, cut into k equal, contiguous parts; k = 1 if each rank has its own
///   cores threads = the number that was asked for, else one per core of the share
/// Each thread is bound to the whole share, not to one core: if another program uses a core, its thread can move to a
/// free one. No thread is bound if there are more threads than cores, if run.bind = "none" or OMP_PROC_BIND=false, or
/// if OpenMP has already bound the threads inside a launcher's share.
struct ThreadPlacement {
  int threads = 1;
  CpuSet cpus = {};       ///< that each thread may use
  bool binds = false;     ///< whether the threads are bound to them here
  std::string text = {};  ///< "1 thread bound to CPU 0, of 0-1 shared by 2 ranks"
};

ThreadPlacement thread_placement(const Surroundings& surroundings);

/// Kokkos with this rank's threads and, on a GPU build, this rank's GPU. Denormal moments slow AdamW tenfold, so every
/// thread sets flush to zero (FTZ and DAZ; FZ on Arm). The flag is always set, since results depend on it.
class Runtime {
 public:
  /// `threads` of this rank; 0: OMP_NUM_THREADS, or else one per core of the rank's share.
  /// Threads are bound as ThreadPlacement says.
  Runtime(std::int64_t threads, const distributed::Environment& environment, Bind bind = Bind::share);

  [[nodiscard]] int threads() const { return placement_.threads; }
  /// The CPUs that this rank's threads may use.
  [[nodiscard]] const CpuSet& cpus() const { return placement_.cpus; }
  /// "2 threads bound to CPUs 0-1, NUMA domain 0", and the GPU.
  [[nodiscard]] const std::string& placement() const { return placement_.text; }

 private:
  void bind_threads();

  ThreadPlacement placement_;
  std::optional<Kokkos::ScopeGuard> kokkos_;
};

/// An empty tuning file (io/deck/tuning_file.hpp) for this device and library.
io::TuningFile tuning_of_this_device();

/// Rank 0 reads the file named by run.tuning, and the products of all ranks use it. Without a file, products use the
/// default algorithms. Returns the file's text. Collective. Throws Error(input), seen by all ranks, if the file cannot
/// be read, is damaged, was made for another device or library, or names an algorithm that is not available.
std::string apply_tuning(const io::Deck& deck, distributed::Communicator& comm);

}  // namespace kozero::train
