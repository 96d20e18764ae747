// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <functional>

#include <kozero/io/piece_cache.hpp>

namespace kozero::io {

std::size_t PieceCache::slot_of(std::string_view piece) { return std::hash<std::string_view>{}(piece) % kNumSlots; }

bool PieceCache::find(std::string_view piece, std::vector<Token>& out) const {
  if (piece.size() > kMaxBytes) return false;
  const Slot& slot = slots_[slot_of(piece)];
  if (slot.num_bytes != piece.size() || std::memcmp(slot.bytes.data(), piece.data(), piece.size()) != 0) return false;
  out.insert(out.end(), slot.tokens.begin(), slot.tokens.begin() + slot.num_tokens);
  return true;
}

void PieceCache::keep(std::string_view piece, std::span<const Token> tokens) {
  if (piece.empty() || piece.size() > kMaxBytes || tokens.size() > kMaxTokens) return;
  Slot& slot = slots_[slot_of(piece)];
  slot.num_bytes = static_cast<std::uint8_t>(piece.size());
  slot.num_tokens = static_cast<std::uint8_t>(tokens.size());
  std::copy(piece.begin(), piece.end(), slot.bytes.begin());
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
}

}  // namespace kozero::io
