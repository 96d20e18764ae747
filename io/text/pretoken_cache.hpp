// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_cache.hpp: the tokens of earlier pretokens: words repeat, so most pretokens need no merging.
// Of fixed size, 26 MiB. Pretokens of up to 15 bytes are compared as two numbers; a line of their table has two of
// them, the newer one first. Longer pretokens, and those of more than 3 tokens, are entries of a buffer that begins
// anew when it is full. One object serves one thread.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kozero/core/views.hpp>

namespace kozero::io {

class PretokenCache {
 public:
  PretokenCache();

  /// The most tokens that a pretoken of the cache may have.
  static constexpr std::size_t kMaxTokens = 64;

  /// Where a pretoken is, if it is known. To find several pretokens, take the places of all of them first: each begins
  /// to load from memory at once.
  class Place;
  /// The pretoken is not empty. `may_read_16`: 16 bytes from the pretoken's begin on are readable.
  [[nodiscard]] Place place_of(std::string_view pretoken, bool may_read_16) const;
  /// Writes the pretoken's tokens at `out`, and perhaps others behind, up to kMaxTokens in all. Returns their number; 0
  /// if they are not known.
  std::size_t find(std::string_view pretoken, const Place& place, Token* out) const;
  /// Remembers the tokens of a pretoken that is short enough.
  void keep(std::string_view pretoken, std::span<const Token> tokens);

 private:
  static constexpr std::size_t kShortBytes = 15, kShortTokens = 3, kMaxBytes = 255;
  static constexpr int kLineBits = 18, kEntryBits = 18;
  static constexpr std::size_t kNumLines = std::size_t{1} << kLineBits, kNumEntries = std::size_t{1} << kEntryBits;
  static constexpr std::size_t kBufferWords = std::size_t{1} << 22;

  /// The bytes, then zeros, then the number of bytes. Of longer pretokens: only a hash.
  struct Key {
    std::uint64_t front = 0, back = 0;
    /// 0 if the keys are equal, without a branch.
    [[nodiscard]] std::uint64_t difference(const Key& other) const {
      return (front ^ other.front) | (back ^ other.back);
    }
    [[nodiscard]] std::uint64_t hash() const {
      const std::uint64_t sum = front * 0x9E3779B97F4A7C15ULL + back * 0xC2B2AE3D27D4EB4FULL;
      return (sum ^ (sum >> 32)) * 0x9FB21C651E98DF25ULL;
    }
  };
  struct Slot {
    Key key;
    std::array<Token, kShortTokens> tokens{};  // or where they begin in the buffer, and its round_ then
    std::uint32_t num_tokens = 0;
  };
  struct alignas(64) Line {
    std::array<Slot, 2> slots;
  };
  static_assert(sizeof(Line) == 64);
  /// A long pretoken. In the buffer: the numbers of bytes and of tokens, the tokens, the bytes.
  struct Entry {
    std::uint32_t hash = 0, first_word = 0;  // 0: none, since the buffer's first word is unused
  };

  static Key key_of(std::string_view pretoken, bool may_read_16);
  static std::uint64_t hash_of(std::string_view pretoken) {
    return std::hash<std::string_view>{}(pretoken)*0x9E3779B97F4A7C15ULL;
  }
  static std::size_t first_line(std::uint64_t hash) { return hash >> (64 - kLineBits); }
  static std::size_t second_line(std::uint64_t hash) { return (hash >> (64 - 2 * kLineBits)) % kNumLines; }
  /// The key's slot, or null.
  static const Slot* slot_in(const Line& line, const Key& key);
  std::size_t find_many(const Slot& slot, Token* out) const;
  Slot& slot_for(const Key& key);
  std::size_t find_entry(std::string_view pretoken, std::uint64_t hash, Token* out) const;
  void keep_entry(std::string_view pretoken, std::span<const Token> tokens);
  std::uint32_t* room_for(std::size_t num_words);

  std::vector<Line> lines_;
  std::vector<Entry> entries_;
  std::unique_ptr<std::uint32_t[]> buffer_;
  std::size_t num_words_ = 1;      ///< of the buffer in use
  Token round_ = 0;                ///< how often the buffer began anew
  std::size_t num_conflicts_ = 0;  ///< pretokens whose lines were full
};

class PretokenCache::Place {
 private:
  friend class PretokenCache;
  Key key_;
  const Line* line_;  // null: the pretoken is long, and key_.front its hash
};

inline PretokenCache::Key PretokenCache::key_of(std::string_view pretoken, bool may_read_16) {
  static_assert(std::endian::native == std::endian::little, "the masks are those of the bytes after the pretoken");
  const std::size_t size = pretoken.size();
  std::uint64_t front = 0, back = 0;
  if (may_read_16) {
    std::memcpy(&front, pretoken.data(), 8);
    std::memcpy(&back, pretoken.data() + 8, 8);
    front &= size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
    back &= size <= 8 ? 0 : (std::uint64_t{1} << (8 * (size - 8))) - 1;
  } else {
    std::memcpy(&front, pretoken.data(), size < 8 ? size : 8);
    if (size > 8) std::memcpy(&back, pretoken.data() + 8, size - 8);
  }
  return {front, back | static_cast<std::uint64_t>(size) << 56};
}

inline PretokenCache::Place PretokenCache::place_of(std::string_view pretoken, bool may_read_16) const {
  Place place;
  if (pretoken.size() > kShortBytes) {
    place.key_.front = hash_of(pretoken);
    place.line_ = nullptr;
    __builtin_prefetch(&entries_[place.key_.front >> (64 - kEntryBits)]);
  } else {
    place.key_ = key_of(pretoken, may_read_16);
    place.line_ = &lines_[first_line(place.key_.hash())];
    __builtin_prefetch(place.line_);
  }
  return place;
}

inline const PretokenCache::Slot* PretokenCache::slot_in(const Line& line, const Key& key) {
  const std::uint64_t first = line.slots[0].key.difference(key), second = line.slots[1].key.difference(key);
  const bool differs = (static_cast<unsigned>(first != 0) & static_cast<unsigned>(second != 0)) != 0;
  return differs ? nullptr : &line.slots[second == 0 ? 1 : 0];
}

inline std::size_t PretokenCache::find(std::string_view pretoken, const Place& place, Token* out) const {
  if (place.line_ == nullptr) return find_entry(pretoken, place.key_.front, out);
  const Slot* slot = slot_in(*place.line_, place.key_);
  if (slot == nullptr) slot = slot_in(lines_[second_line(place.key_.hash())], place.key_);
  if (slot == nullptr) return 0;
  std::memcpy(out, slot->tokens.data(), sizeof(slot->tokens));
  return slot->num_tokens <= kShortTokens ? slot->num_tokens : find_many(*slot, out);
}

}  // namespace kozero::io
