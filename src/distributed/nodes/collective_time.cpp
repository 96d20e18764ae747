// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// collective_time.cpp: the latency-bandwidth model of collectives over nodes.
#include <algorithm>
#include <cmath>

#include <kozero/core/parameter_table.hpp>
#include <kozero/distributed/collective_time.hpp>
#include "src/distributed/nodes/chain_reduction.hpp"

namespace kozero::distributed {
namespace {

double across_nodes(const NodeLayout& layout) { return static_cast<double>(layout.num_nodes - 1) / layout.num_nodes; }

double pipelined_chain_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most,
                               const NodeLink& link) {
  const auto bytes = static_cast<double>(array_bytes);
  const auto of_flow = static_cast<double>(chain_chunk_bytes(array_bytes, layout, most));
  const double chunk = of_flow * layout.ranks_per_node;
  const double on_core = link.message_s + (layout.ranks_per_node + 2) * of_flow / link.memory;  // sum, addends, result
  const double on_link = chunk / link.bytes_per_second;
  return std::ceil(bytes / chunk) * std::max(on_core, on_link) + layout.num_nodes * (on_core + on_link) +
         bytes / layout.num_nodes / link.bytes_per_second;
}

}  // namespace

std::int64_t chain_chunk_bytes(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most) {
  constexpr auto kStep = kAlignment * static_cast<std::int64_t>(sizeof(float));
  const NodeLink assumed;
  const double of_node = std::sqrt(static_cast<double>(array_bytes) * assumed.message_s * assumed.bytes_per_second /
                                   static_cast<double>(layout.num_nodes));
  const std::int64_t bytes = std::min(static_cast<std::int64_t>(of_node) / layout.ranks_per_node, most);
  return std::max(bytes / kStep, std::int64_t{1}) * kStep;
}

double pairwise_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t chunk_bytes,
                        const NodeLink& link) {
  const int size = layout.num_nodes * layout.ranks_per_node;
  const std::int64_t chunk = std::max(chunk_bytes / std::max(size - 1, 1), std::int64_t{1});
  const std::int64_t chunks = (array_bytes / size + chunk - 1) / chunk;
  const double messages = static_cast<double>(size - 1) * static_cast<double>(chunks);
  const double sent =
      static_cast<double>(layout.ranks_per_node) * static_cast<double>(array_bytes) * across_nodes(layout);
  return sent / link.bytes_per_second + messages * link.message_s;
}

double chain_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t most) {
  const NodeLink link;
  const auto bytes = static_cast<double>(array_bytes);
  const auto chunk = static_cast<double>(chain_chunk_bytes(array_bytes, layout, most) * layout.ranks_per_node);
  return (std::ceil(bytes / chunk) + layout.num_nodes) * (link.message_s + chunk / link.bytes_per_second) +
         bytes / layout.num_nodes / link.bytes_per_second;  // finished shards, beside the sums on full-duplex links
}

double gather_seconds(std::int64_t array_bytes, const NodeLayout& layout, const NodeLink& link) {
  const auto bytes = static_cast<double>(array_bytes);
  const double copied = 2.0 * bytes * (layout.ranks_per_node - 1) / layout.ranks_per_node;
  return std::max(bytes * across_nodes(layout) / link.bytes_per_second + (layout.num_nodes - 1) * link.message_s,
                  copied / link.memory);
}

std::int64_t chain_chunk_limit(std::int64_t chunk_bytes) { return chunk_bytes / ChainReductions::kWindow; }

double reduction_seconds(std::int64_t array_bytes, const NodeLayout& layout, std::int64_t chunk_bytes,
                         const NodeLink& link) {
  const std::int64_t most = chain_chunk_limit(chunk_bytes);
  const bool by_chain = chain_seconds(array_bytes, layout, most) < pairwise_seconds(array_bytes, layout, chunk_bytes);
  return by_chain ? pipelined_chain_seconds(array_bytes, layout, most, link)
                  : pairwise_seconds(array_bytes, layout, chunk_bytes, link);
}

}  // namespace kozero::distributed
