// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// node_layout.hpp: placement of ranks on nodes, and the cost model by which `mpi` chooses its reduction over nodes.
//   N nodes of p ranks, n = N p      S bytes of an array
//   a message costs a seconds        a node's link carries b bytes per second
//   pairwise   p S (N-1)/N / b + M a                  M = (n-1) ceil(S/n / chunk) messages per rank
//   chain      (S/c + N) (a + c/b) + 2 S/N / b        each step sends c bytes of a node, one message per flow; the
//                                                     last term bounds accumulators and results
// A chain's first term is smallest for c = sqrt(S a b / N). Constants are those of a 100 Gbit/s link; only the choice
// and the size of chunks depend on them, the bits do not. The header includes no Kokkos.
#pragma once
#include <cstdint>

#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// The ranks of node v are v * ranks_per_node + 0, 1, ...
struct NodeLayout {
  int num_nodes = 1;
  int ranks_per_node = 1;  ///< 0: the nodes have unequal numbers of ranks, or ranks are not numbered node by node

  [[nodiscard]] int node(int rank) const { return rank / ranks_per_node; }
  /// The index of a rank on its node.
  [[nodiscard]] int local(int rank) const { return rank % ranks_per_node; }
  [[nodiscard]] int rank(int node, int local) const { return node * ranks_per_node + local; }
};

/// The layout of `ranks`, equal on all ranks. Collective. If `simulated` is not 0, each node is that many consecutive
/// ranks.
NodeLayout node_layout(const Ranks& ranks, int simulated);

inline constexpr double kMessageSeconds = 2e-6;
inline constexpr double kLinkBytesPerSecond = 12.5e9;

/// Bytes of a chunk of one flow: a multiple of 64 floats, at most `most`.
std::int64_t chain_chunk_bytes(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most);

double pairwise_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t chunk_bytes);
double chain_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most);

}  // namespace kozero::distributed
