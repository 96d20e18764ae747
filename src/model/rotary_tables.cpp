// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/kernels/rope.hpp>
#include <kozero/model/rotary_tables.hpp>

namespace kozero::model {

void RotaryTables::reserve(MemoryLedger& ledger, const Device& space, std::int64_t positions, std::int64_t head_dim) {
  cosines = ledger.take<float>(Memory::workspace, "rotary cosines", positions, head_dim / 2);
  sines = ledger.take<float>(Memory::workspace, "rotary sines", positions, head_dim / 2);
  const kernels::RopeFrequencies frequencies{.theta = static_cast<double>(theta),
                                             .factor = static_cast<double>(scaling.factor),
                                             .low_freq_factor = static_cast<double>(scaling.low_freq_factor),
                                             .high_freq_factor = static_cast<double>(scaling.high_freq_factor),
                                             .original_seq = static_cast<double>(scaling.original_seq)};
  if (!ledger.plans_only()) kernels::rope_tables(space, cosines, sines, frequencies);
}

}  // namespace kozero::model
