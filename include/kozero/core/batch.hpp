// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch.hpp: the sequences of one micro-step. The data loader fills a batch, and models read it.
#pragma once
#include <cstdint>

#include <kozero/core/views.hpp>

namespace kozero {

/// One micro-step's sequences on this rank, in device memory.
struct Batch {
  Matrix<const Token> inputs;              ///< (B, T)
  Matrix<const Token> targets;             ///< (B, T), the next tokens
  Vector<const std::uint64_t> sample_ids;  ///< (B), epoch * 2^40 + sample: keys of the rows' random streams
  [[nodiscard]] std::int64_t num_sequences() const { return static_cast<std::int64_t>(inputs.extent(0)); }
};

}  // namespace kozero
