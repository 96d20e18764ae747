// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// network_delay.hpp: how much longer a slow network makes a step. `plan` and the verdict of `report` share this rule.
//   network  = 8 bytes / rate + collectives * latency
//   delay    = max(0, network - what the collectives take anyway)
//   exposed  = delay - min(its part that can be hidden, the computation beside it)
// Reductions can be hidden with zero.overlap, behind backward: two thirds of both passes. In stage 3 with
// zero.prefetch_units, gathers can be hidden too, behind both passes. The sums over a step's units replace the single
// unit, so the first and the last unit, which nothing hides, are left out.
#pragma once

namespace kozero::plan {

/// A step's collectives on one rank, and the computation beside them.
struct Exchange {
  int stage = 0;
  bool overlap = true;
  bool prefetches = true;
  double reduced = 0.0, gathered = 0.0;    ///< bytes sent
  double reductions = 0.0, gathers = 0.0;  ///< calls
  double sent_s = 0.0;                     ///< seconds of the collectives without the network's delay
  double passes_s = 0.0;                   ///< seconds of forward and backward, without collectives
};

/// Seconds of a step.
struct NetworkDelay {
  double exposed = 0.0, hidden = 0.0;
};

/// `gbit`: 10^9 bits per second of a rank's link, 0: no limit; `latency_us`: microseconds per collective.
NetworkDelay network_delay(const Exchange& exchange, double gbit, double latency_us);

}  // namespace kozero::plan
