// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// collective_time.hpp: cost models of `mpi` on several nodes: by one it chooses its reduction, by the other `plan`
// estimates steps.
//   N nodes of p ranks, n = N p      S bytes of an array      c bytes of a node per step of a chain
//   a message costs a seconds        a node's link carries b bytes per second       a rank reads and writes m
// The choice, on an assumed link:
//   pairwise   p S (N-1)/N / b + M a                  M = (n-1) ceil(S/n / chunk) messages per rank
//   chain      (S/c + N) (a + c/b) + S/N / b          each step sends c bytes of a node, one message per flow; the last
//                                                     term: finished shards. Smallest for c = sqrt(S a b / N)
// The estimate, in which a core and a link work at the same time:
//   chain      S/c max(t, c/b) + N (t + c/b) + S/N / b           t = a + (p+2) c/p / m
//   gather     max(S (N-1)/N / b + (N-1) a, 2 S (p-1)/p / m)     each shard goes once to each node; it is copied from
//                                                     peers while the next gather's messages travel
// docs/scale.md compares the estimate with simulations. The header includes no Kokkos.
#pragma once
#include <cstdint>
#include <limits>

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

/// Costs of messages between nodes. The default is a link of 100 Gbit/s; only the choice of an algorithm and the size
/// of chunks depend on it, the bits do not.
struct NodeLink {
  double message_s = 2e-6;  ///< a
  double bytes_per_second = 12.5e9;
  double memory = std::numeric_limits<double>::infinity();  ///< m, per rank; infinity: not counted
};

/// Bytes of a chunk of one flow: a multiple of 64 floats, at most `most`. For the default link.
std::int64_t chain_chunk_bytes(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most);

double pairwise_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t chunk_bytes,
                        const NodeLink& link = {});
double chain_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most);
double gather_seconds(std::int64_t array_bytes, const NodeLayout& layout, const NodeLink& link);

/// Bytes of a chain's chunk at most, for CommunicatorOptions::chunk_bytes.
std::int64_t chain_chunk_limit(std::int64_t chunk_bytes);

/// The estimate for the reduction that `mpi` chooses for an array whose shards are equal.
double reduction_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t chunk_bytes,
                         const NodeLink& link);

}  // namespace kozero::distributed
