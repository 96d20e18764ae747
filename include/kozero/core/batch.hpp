// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// batch.hpp: the sequences of one micro-step, and the documents in them. The data loader fills a batch, and models
// read it.
#pragma once
#include <cstdint>

#include <kozero/core/views.hpp>

namespace kozero {

/// A target that does not count: its position has no loss and no gradient.
inline constexpr Token kIgnoredTarget = -1;

/// Positions [first, first + count) of a sequence.
struct DocumentSpan {
  std::int32_t sequence, first, count;
  std::int32_t before;  ///< tokens of the spans before this one in the list
};

/// The documents of a batch whose tokens see their own document alone, in device memory. Default: each sequence is one
/// document, and no array is given.
struct Documents {
  Vector<const DocumentSpan> spans;      ///< of all positions of the batch; the longest first, then in order
  Vector<const std::int32_t> positions;  ///< (B T), each token's position in its document
  std::int64_t longest = 0;              ///< tokens of the longest document

  [[nodiscard]] KOKKOS_FUNCTION bool given() const { return longest > 0; }
};

/// One micro-step's sequences on this rank, in device memory.
struct Batch {
  Matrix<const Token> inputs;              ///< (B, T)
  Matrix<const Token> targets;             ///< (B, T), the next tokens, or kIgnoredTarget
  Vector<const std::uint64_t> sample_ids;  ///< (B), epoch * 2^40 + sample: keys of the rows' random streams
  Documents documents{};
  [[nodiscard]] std::int64_t num_sequences() const { return static_cast<std::int64_t>(inputs.extent(0)); }
};

}  // namespace kozero
