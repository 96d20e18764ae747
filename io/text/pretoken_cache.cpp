// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_cache.cpp: remembering pretokens, and the buffer of the longer ones.
#include <algorithm>

#include "io/text/pretoken_cache.hpp"

namespace kozero::io {

PretokenCache::PretokenCache()
    : lines_(kNumLines),
      entries_(kNumEntries),
      buffer_(std::make_unique_for_overwrite<std::uint32_t[]>(kBufferWords)) {}

std::size_t PretokenCache::find_many(const Slot& slot, Token* out) const {
  if (slot.tokens[1] != round_) return 0;
  std::memcpy(out, &buffer_[static_cast<std::size_t>(slot.tokens[0])], slot.num_tokens * sizeof(Token));
  return slot.num_tokens;
}

/// The key's own slot, an empty one, or one whose pretoken is to be forgotten. Pretokens that came first stay in their
/// first line, since frequent ones come early; but one in eight new ones takes their place.
PretokenCache::Slot& PretokenCache::slot_for(const Key& key) {
  const std::uint64_t hash = key.hash();
  Line &first = lines_[first_line(hash)], &second = lines_[second_line(hash)];
  for (Slot* slot : {&first.slots[0], &first.slots[1], &second.slots[0], &second.slots[1]}) {
    if (slot->num_tokens == 0 || slot->key.difference(key) == 0) return *slot;
  }
  ++num_conflicts_;
  return (num_conflicts_ % 8 == 0 ? first : second).slots[num_conflicts_ / 8 % 2];
}

std::size_t PretokenCache::find_entry(std::string_view pretoken, std::uint64_t hash, Token* out) const {
  const Entry& entry = entries_[hash >> (64 - kEntryBits)];
  if (entry.first_word == 0 || entry.hash != static_cast<std::uint32_t>(hash)) return 0;
  const std::uint32_t* words = &buffer_[entry.first_word];
  const std::size_t num_bytes = words[0] & 0xFFFF, num_tokens = words[0] >> 16;
  if (num_bytes != pretoken.size() || std::memcmp(words + 1 + num_tokens, pretoken.data(), num_bytes) != 0) return 0;
  std::memcpy(out, words + 1, num_tokens * sizeof(Token));
  return num_tokens;
}

std::uint32_t* PretokenCache::room_for(std::size_t num_words) {
  if (num_words_ + num_words > kBufferWords) {
    std::fill(entries_.begin(), entries_.end(), Entry());
    num_words_ = 1;
    ++round_;
  }
  num_words_ += num_words;
  return &buffer_[num_words_ - num_words];
}

void PretokenCache::keep_entry(std::string_view pretoken, std::span<const Token> tokens) {
  std::uint32_t* words = room_for(1 + tokens.size() + (pretoken.size() + 3) / 4);
  const std::uint64_t hash = hash_of(pretoken);
  entries_[hash >> (64 - kEntryBits)] = {static_cast<std::uint32_t>(hash),
                                         static_cast<std::uint32_t>(words - buffer_.get())};
  words[0] = static_cast<std::uint32_t>(tokens.size() << 16 | pretoken.size());
  std::memcpy(words + 1, tokens.data(), tokens.size_bytes());
  std::memcpy(words + 1 + tokens.size(), pretoken.data(), pretoken.size());
}

void PretokenCache::keep(std::string_view pretoken, std::span<const Token> tokens) {
  if (pretoken.empty() || pretoken.size() > kMaxBytes || tokens.size() > kMaxTokens) return;
  if (pretoken.size() > kShortBytes) return keep_entry(pretoken, tokens);
  const Key key = key_of(pretoken, false);
  Slot& slot = slot_for(key);
  slot = {key, {}, static_cast<std::uint32_t>(tokens.size())};
  if (tokens.size() <= kShortTokens) {
    std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  } else {
    std::uint32_t* words = room_for(tokens.size());
    std::memcpy(words, tokens.data(), tokens.size_bytes());
    slot.tokens = {static_cast<Token>(words - buffer_.get()), round_, 0};
  }
}

}  // namespace kozero::io
