// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// piece_cache.hpp: the tokens of pieces met before. Words repeat, so most pieces need no merging.
// A fixed table of one-line slots, each holding the last short piece that fell into it: 4 MiB, no growth, no
// allocation.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

class PieceCache {
 public:
  PieceCache() : slots_(kNumSlots) {}

  /// Appends the piece's tokens to `out` and returns true where they are known.
  bool find(std::string_view piece, std::vector<Token>& out) const;
  /// Remembers the tokens of a piece that is short enough.
  void keep(std::string_view piece, std::span<const Token> tokens);

 private:
  static constexpr std::size_t kNumSlots = std::size_t{1} << 16;
  static constexpr std::size_t kMaxBytes = 22;
  static constexpr std::size_t kMaxTokens = 10;
  struct Slot {
    std::uint8_t num_bytes = 0;  // 0: empty
    std::uint8_t num_tokens = 0;
    std::array<char, kMaxBytes> bytes{};
    std::array<Token, kMaxTokens> tokens{};
  };
  static_assert(sizeof(Slot) == 64);

  [[nodiscard]] static std::size_t slot_of(std::string_view piece);

  std::vector<Slot> slots_;
};

}  // namespace kozero::io
