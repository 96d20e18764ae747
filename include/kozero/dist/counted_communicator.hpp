// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// counted_communicator.hpp: counts calls, bytes sent by this rank and seconds in all parts of them, by collective.
//   reduce_scatter   (S - own slice) bytes        all_gather   (n - 1) * own slice        S: the full array, n ranks
// Summed over the ranks each call is (n - 1) * S, however the slices fall. Control traffic is not counted.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include <kozero/dist/communicator_decorator.hpp>

namespace kozero::dist {

struct CollectiveCount {
  std::string_view collective;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0.0;
};

class CountedCommunicator final : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;

  Pending start_reduce_scatter(const float* full, float* slice, const Partition& partition) override;
  Pending start_all_gather(const void* slice, void* full, const Partition& partition,
                           std::size_t element_size) override;
  void finish(Pending pending) override;
  void reclaim(Pending pending) override;

  /// One row a collective, since the start or the last reset.
  [[nodiscard]] const std::array<CollectiveCount, 2>& counts() const { return counts_; }
  void reset();

 private:
  CollectiveCount& row(Collective collective) { return counts_[static_cast<std::size_t>(collective)]; }

  std::array<CollectiveCount, 2> counts_{{{"reduce_scatter"}, {"all_gather"}}};
};

}  // namespace kozero::dist
