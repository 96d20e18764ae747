// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// step_time.hpp: how long a training step will take, from rates of the machine.
//   products        floating point operations / rate of products, and of those computed again
//   streams         bytes that norms, activations, losses and gradients' sums move / rate of memory
//   update          bytes of weights, gradients and states / rate of memory, or of the bus for state on the host
//   communication   bytes sent / rate of the link + collectives * latency, less what travels behind backward
//   disk            bytes of state read and written / rate of the disk
// An estimate: what it says best is which of these limits.
#pragma once
#include <string>

#include <kozero/plan/memory_plan.hpp>

namespace kozero::plan {

/// Of one rank: a second's work.
struct Rates {
  std::string source;      ///< where they come from, for the user
  double products = 0.0;   ///< floating point operations
  double memory = 0.0;     ///< bytes
  double link = 0.0;       ///< bytes sent, between nodes where the ranks are on several
  double link_in_group = 0.0;  ///< bytes sent within groups of zero.shard_group
  double latency_s = 0.0;  ///< of a collective
  double disk = 1e9;       ///< bytes
  double bus = 25e9;          ///< bytes between a GPU and its host, each way
  double host_memory = 40e9;  ///< bytes, a GPU's share of its host
  bool overlaps = false;   ///< the link moves bytes while products are computed
};

/// What all threads that Kokkos has here do in a second.
struct Speed {
  double products = 0.0;  ///< floating point operations
  double memory = 0.0;    ///< bytes
};

/// By a product of the deck's shape and a copy, a tenth of a second each.
Speed measured_speed(const train::Settings& settings);

/// Of a rank with so many of this machine's threads. On a GPU the maker's figures for it.
Rates rates_at(const Speed& speed, const train::Settings& settings, int ranks, int threads);

/// Of "a100", "h100", "h200": the maker's figures, half of the peak for products. Ranks of one node of 8 talk by
/// NVLink, others at 50 GB/s a GPU. NVIDIA's data sheets of the A100 80GB (2021), H100 SXM (2022), H200 (2023); buses
/// and hosts are those of its DGX A100 (PCIe 4, DDR4-3200) and DGX H100 and H200 (PCIe 5, DDR5-4800), at 80 %.
Rates published_rates(const std::string& device, const train::Settings& settings, int ranks);

/// Bytes of such a GPU's memory.
std::int64_t published_memory(const std::string& device);

/// Seconds.
struct StepTime {
  double products = 0.0;
  double streams = 0.0;
  double update = 0.0;
  double communication = 0.0;  ///< not hidden
  double hidden = 0.0;         ///< communication behind backward; not in the total
  double disk = 0.0;           ///< not hidden

  [[nodiscard]] double total() const { return products + streams + update + communication + disk; }
  /// The largest of them, by name.
  [[nodiscard]] std::string limit() const;
};

StepTime step_time(const train::Settings& settings, const MemoryPlan& plan, const Rates& rates);

}  // namespace kozero::plan
