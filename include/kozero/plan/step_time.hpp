// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// step_time.hpp: an estimate of a training step's time, from rates of the machine.
//   products        floating point operations, recomputed ones included / rate of products
//   streams         bytes that norms, activations and logits move / rate of memory
//   update          bytes of weights, gradients, their sums and states / rate of memory; for state on a GPU's host,
//                   / rate of the host's memory or of the bus
//   communication   bytes sent / rate of the link + collectives * latency, or for `mpi` on several nodes the times of
//                   its algorithms (collective_time.hpp); + bytes of weights on the host / rate of the bus, less what
//                   backward hides of it on GPUs, + the delay of a simulated network (network_delay.hpp)
//   disk            bytes of state read and written / rate of the disk, less the writes hidden behind products
// The estimate is most reliable about which of these terms limits a step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/plan/memory_plan.hpp>

namespace kozero::plan {

/// The work of one rank per second.
struct Rates {
  std::string source;          ///< origin of the rates, for the user
  double products = 0.0;       ///< floating point operations
  double memory = 0.0;         ///< bytes
  double link = 0.0;           ///< bytes sent; between nodes if there are several
  double link_in_group = 0.0;  ///< bytes sent within groups of zero.shard_group
  double latency_s = 0.0;      ///< seconds of a collective
  double disk = 1e9;           ///< bytes; the ranks of a node share their disk
  double bus = 25e9;           ///< bytes between a GPU and its host, each way
  double host_memory = 40e9;   ///< bytes, a GPU's share of its host
  bool overlaps = false;       ///< the link moves bytes while products are computed
};

/// The work of all Kokkos threads of this process per second.
struct Speed {
  double products = 0.0;  ///< floating point operations
  double memory = 0.0;    ///< bytes
  double load = 0.0;      ///< the machine's load average meanwhile
};

/// Measured by a matrix product of the deck's shape and a copy, a tenth of a second each.
Speed measured_speed(const train::Settings& settings);

/// The rates of a rank with `threads` of this machine's threads; on a known GPU, its published_rates().
Rates rates_at(const Speed& speed, const train::Settings& settings, int ranks, int threads);

/// Names of the GPUs whose rates are known: "a100", ...
std::vector<std::string> published_gpus();

/// 50 % of the published peak for products, and 80 % of the other published rates. Up to 8 ranks share a node and
/// communicate by NVLink, or by the bus; more ranks at 50 GB/s per GPU.
Rates published_rates(const std::string& device, const train::Settings& settings, int ranks);

/// Bytes of memory of the GPU `device`, as in published_rates().
std::int64_t published_memory(const std::string& device);

/// Sustained rates of a rank that a user gives, per second.
struct GivenRates {
  double products = 0.0;  ///< floating point operations
  double memory = 0.0;    ///< bytes
  double link = 0.0;      ///< bytes sent
};

/// `rates` with those of products, memory and links replaced.
Rates with_given_rates(Rates rates, const GivenRates& given);

/// Bytes of a GPU beside the arrays of `plan`: 1.5 GiB for the CUDA context, the program's kernels and the libraries'
/// workspaces; for each of NCCL's communicators 32 channels of 16 MiB. An estimate (docs/gpu.md). 0 for a host.
std::int64_t estimated_reserve(const MemoryPlan& plan);

/// Seconds of a step, by term.
struct StepTime {
  double products = 0.0;
  double streams = 0.0;
  double update = 0.0;
  double communication = 0.0;  ///< not hidden
  double hidden = 0.0;         ///< communication behind computation; not in the total
  double disk = 0.0;           ///< not hidden

  [[nodiscard]] double total() const { return products + streams + update + communication + disk; }
  /// The name of the largest term.
  [[nodiscard]] std::string limit() const;
};

StepTime step_time(const train::Settings& settings, const MemoryPlan& plan, const Rates& rates);

}  // namespace kozero::plan
