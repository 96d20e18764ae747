// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// runtime.cpp: the rank's share of cores, the start of Kokkos, and the tuning file agreed on by all ranks.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/train/runtime.hpp>
#include "io/posix/file.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::train {
namespace {

using Cores = std::vector<CpuSet>;

/// Part `index` of `num_parts` contiguous parts of equal size, up to one core.
Cores part_of(const Cores& cores, int index, int num_parts) {
  const auto first_core = [&](int part) { return static_cast<std::ptrdiff_t>(cores.size()) * part / num_parts; };
  return {cores.begin() + first_core(index), cores.begin() + first_core(index + 1)};
}

CpuSet joined(const Cores& cores) {
  CpuSet cpus;
  for (const auto& core : cores) cpus.insert(cpus.end(), core.begin(), core.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string named(const CpuSet& cpus) { return (cpus.size() == 1 ? "CPU " : "CPUs ") + as_ranges(cpus); }

std::string threads_text(int threads) { return std::to_string(threads) + (threads == 1 ? " thread" : " threads"); }

/// Why threads are not bound here; "" if they are to be bound.
std::string reason_against_binding(const Surroundings& given, const Cores& share, int threads) {
  std::string bind = given.proc_bind;
  std::transform(bind.begin(), bind.end(), bind.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (bind == "false") return "not bound: OMP_PROC_BIND=" + given.proc_bind;
  if (given.bind == Bind::none && bind.empty()) return "not bound: run.bind = \"none\"";
  if (static_cast<std::size_t>(given.sharers) > given.cores.size()) return "not bound: there are more ranks than cores";
  if (static_cast<std::size_t>(threads) > share.size()) return "not bound: there are more threads than cores";
  if (!bind.empty() && (given.sharers == 1 || given.bind == Bind::none))
    return "bound by OMP_PROC_BIND=" + given.proc_bind;
  return "";
}

std::string numa_text(const CpuSet& cpus) {
  const auto domains = numa_domains_of(cpus);
  if (domains.empty()) return "";
  return (domains.size() == 1 ? ", NUMA domain " : ", NUMA domains ") + as_ranges(domains);
}

Surroundings surroundings_of(std::int64_t threads, const distributed::Environment& environment, Bind bind) {
  const char* num_threads = std::getenv("OMP_NUM_THREADS");
  const char* proc_bind = std::getenv("OMP_PROC_BIND");
  const int wanted = num_threads == nullptr ? 0 : std::atoi(num_threads);
  return {.cores = cores_of(allowed_cpus()),
          .sharers = environment.cpu_sharers(),
          .sharer = environment.cpu_sharer(),
          .asked_threads = threads > 0 ? static_cast<int>(threads) : std::max(0, wanted),
          .proc_bind = proc_bind == nullptr ? "" : proc_bind,
          .bind = bind};
}

/// Calls `body(thread)` once on each of the host's threads.
template <class Body>
void on_each_thread(const char* label, int threads, const Body& body) {
  const Host space;
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Static>>(space, 0, threads), body);
  space.fence(label);
}

/// Flushes denormal operands and results of the calling thread to zero from now on.
void flush_denormals() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);  // FTZ and DAZ
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | std::uint64_t{1} << 24U));  // FZ covers operands and results
#endif
}

constexpr std::int64_t kLargestFile = std::int64_t{1} << 24;

void require_same(const std::string& path, const std::string& what, const std::string& there, const std::string& here) {
  if (there == here) return;
  throw Error(Failure::input, path + ": it was made for the " + what + " \"" + there + "\", this is \"" + here +
                                  "\"; `kozero bench tune` makes one here");
}

kernels::ProductAlgorithms algorithms_in(const std::string& text, const std::string& path) {
  const io::TuningFile tuning = io::parse_tuning(text, path);
  const io::TuningFile here = tuning_of_this_device();
  require_same(path, "device", tuning.device, here.device);
  require_same(path, "library", tuning.library, here.library);
  return tuning.products;
}

}  // namespace

ThreadPlacement thread_placement(const Surroundings& given) {
  const Cores share = part_of(given.cores, given.sharer, given.sharers);
  const CpuSet all = joined(given.cores);
  ThreadPlacement placement;
  placement.threads = given.asked_threads > 0 ? given.asked_threads : std::max(1, static_cast<int>(share.size()));
  const std::string reason = reason_against_binding(given, share, placement.threads);
  if (!reason.empty()) {
    placement.cpus = all;
    placement.text = threads_text(placement.threads) + " on " + named(all) + ", " + reason;
    return placement;
  }
  placement.cpus = joined(share);
  placement.binds = true;
  placement.text = threads_text(placement.threads) + " bound to " + named(placement.cpus);
  if (given.sharers > 1) {
    placement.text += ", of " + as_ranges(all) + " shared by " + std::to_string(given.sharers) + " ranks";
  }
  return placement;
}

Runtime::Runtime(std::int64_t threads, const distributed::Environment& environment, Bind bind)
    : placement_(thread_placement(surroundings_of(threads, environment, bind))) {
  auto settings = Kokkos::InitializationSettings().set_num_threads(placement_.threads).set_disable_warnings(true);
  const int gpus = Kokkos::num_devices();  // -1 on a host build
  if (gpus > 0) settings.set_device_id(environment.local_rank() % gpus);
  kokkos_.emplace(settings);
  bind_threads();
  placement_.text += numa_text(placement_.cpus);
  if (gpus > 0) placement_.text += ", " + device_name();
  on_each_thread("kozero::flush_denormals", placement_.threads, [](const int) { flush_denormals(); });
  on_each_thread("kozero::use_signal_stack", placement_.threads, [](const int) { use_signal_stack(); });
}

void Runtime::bind_threads() {
  if (!placement_.binds) return;
  std::atomic<bool> bound = true;
  on_each_thread("kozero::bind_threads", placement_.threads, [&](const int) {
    if (!bind_this_thread(placement_.cpus)) bound = false;
  });
  if (!bound) placement_.text += " (refused by the system)";
}

io::TuningFile tuning_of_this_device() {
  const std::string gpu = device_name();  // the address follows the name
  return {kHostIsDevice ? cpu_name() : gpu.substr(0, gpu.rfind(" at ")),
          kernels::product_library(),
          kHostIsDevice ? Device().concurrency() : 0,
          {}};
}

std::string apply_tuning(const io::Deck& deck, distributed::Communicator& comm) {
  const std::string& path = deck.run.tuning;
  const bool given = path != "none";
  const bool reads = given && comm.rank() == 0;
  const std::string mine =
      distributed::agreed(comm, [&] { return reads ? io::read_whole_file(path, kLargestFile) : std::string(); });
  const std::string text = given ? comm.broadcast_control(mine) : "";
  distributed::agreed(comm, [&] {
    kernels::use_product_algorithms(given ? algorithms_in(text, path) : kernels::ProductAlgorithms(), path);
  });
  return text;
}

}  // namespace kozero::train
