// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// machine.hpp: a simulated cluster under SimGrid's SMPI, whose ranks are contexts of this process.
//   N nodes of p ranks, one link of `gbit` Gbit/s per node and direction
// Time is the simulated clock. Nothing is measured: time passes in messages and where pass() is called. SimGrid gives
// the ranks, the clock and control traffic. The times of the messages of training come from
//   flows    SimGrid's network model CM02 on a fat tree: leaf switches of 16 nodes, 16 spine switches, no
//   oversubscription queues   this project's own model of a node's link (class Queues in machine.cpp), without a
//   network behind it
// Casanova et al. 2014, doi:10.1016/j.jpdc.2014.06.008.
#pragma once
#include <cstdint>
#include <functional>

namespace kozero::scale {

/// How messages share links.
///   flows    SimGrid's model CM02 in the fat tree: the messages under way share each link fairly. A new solution for
///            every message that begins or ends makes it too slow for over some hundred ranks
///   queues   each node sends one message after the other and receives one after the other, and no switch is a limit.
///            Control traffic takes latency_s per message, whatever its bytes
enum class Links { flows, queues };

struct Machine {
  int ranks = 64;
  int ranks_per_node = 8;
  double gbit = 100.0;      ///< of a node's link, 10^9 bits per second each way
  double latency_s = 1e-6;  ///< between two nodes
  double message_s = 1e-6;  ///< of a rank's core, for a message it sends, and for one it receives
  double memory = 20e9;     ///< bytes per second that a rank reads and writes in copies and sums
  Links links = Links::flows;

  [[nodiscard]] int nodes() const { return ranks / ranks_per_node; }
};

/// Runs `rank` on every rank, and returns when all have returned. An exception on a rank ends the process.
void simulate(const Machine& machine, const std::function<void()>& rank);

/// Lets simulated time pass on this rank.
void pass(double seconds);

/// The time in which this rank reads and writes `bytes` bytes.
void pass_bytes(std::int64_t bytes);

/// This rank's number, from 0; -1 outside of simulate().
int simulated_rank();

double simulated_seconds();

/// What a rank has given to MPI.
struct Traffic {
  std::int64_t requests = 0;       ///< messages of collectives of training, sent and received
  std::int64_t bytes_sent = 0;     ///< by them
  std::int64_t control_calls = 0;  ///< collectives of control traffic
  std::int64_t control_bytes = 0;  ///< received in them
};
Traffic& traffic();

}  // namespace kozero::scale
