// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_counts.hpp: how often each pretoken occurs: a hash table whose texts lie in blocks of memory.
// The counts do not depend on the order in which pretokens come.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "io/text/bpe_merges.hpp"

namespace kozero::io {

class PretokenCounts {
 public:
  PretokenCounts();

  /// Counts the pretoken, whose text is copied.
  void add(std::string_view pretoken, std::int64_t count = 1);
  /// Counts pretokens of 2 to `longest` bytes once each.
  void add_all(std::span<const std::string_view> pretokens, std::size_t longest);
  /// In the order of their first occurrence. The texts are valid until the object ends.
  [[nodiscard]] std::span<const CountedPretoken> all() const { return counted_; }
  [[nodiscard]] std::size_t size() const { return counted_.size(); }
  /// Drops pretokens of at most 1, then 2, 4, 8 ... occurrences, until at most `most` are left.
  void drop_rarest(std::size_t most);

 private:
  void add_hashed(std::string_view pretoken, std::uint32_t hash, std::int64_t count);
  [[nodiscard]] std::string_view stored(std::string_view text);
  void rehash(std::size_t num_slots);

  struct Slot {
    std::uint32_t hash = 0, number = 0;  // of an element of counted_, from 1 on; 0: empty
  };
  std::vector<Slot> slots_;
  std::vector<CountedPretoken> counted_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t left_ = 0;  ///< bytes of the last block that are free
};

}  // namespace kozero::io
