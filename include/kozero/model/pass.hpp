// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pass.hpp: what every layer must know of the sequences that are passing through the network.
//   N = batch * positions rows; row n is position n % positions of sequence n / positions
#pragma once
#include <kozero/core/views.hpp>
#include <kozero/model/scratch.hpp>

namespace kozero::model {

struct Pass {
  Device space;
  std::int64_t batch = 0;      ///< B
  std::int64_t positions = 0;  ///< T
  Vector<const std::uint64_t> sample_ids;  ///< (B)
  float dropout = 0.0F;                    ///< 0 outside training
  Vector<std::byte> scratch_memory;

  [[nodiscard]] std::int64_t num_rows() const { return batch * positions; }
  /// The whole scratch memory; what an earlier layer left there is dead.
  [[nodiscard]] Scratch scratch() const { return Scratch(scratch_memory); }
};

}  // namespace kozero::model
