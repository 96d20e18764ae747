// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_counts.cpp: open addressing with linear probing, at most half full.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "io/text/pretoken_counts.hpp"

namespace kozero::io {
namespace {

constexpr std::size_t kFirstSlots = std::size_t{1} << 16;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

std::uint32_t hash_of(std::string_view text) {
  return static_cast<std::uint32_t>((std::hash<std::string_view>{}(text)*0x9E3779B97F4A7C15ULL) >> 32);
}

}  // namespace

PretokenCounts::PretokenCounts() : slots_(kFirstSlots) {}

void PretokenCounts::add(std::string_view pretoken, std::int64_t count) {
  add_hashed(pretoken, hash_of(pretoken), count);
}

/// In groups, whose slots load from memory while their hashes are computed.
void PretokenCounts::add_all(std::span<const std::string_view> pretokens, std::size_t longest) {
  constexpr std::size_t kGroup = 64;
  std::array<std::uint32_t, kGroup> hashes;
  for (; !pretokens.empty(); pretokens = pretokens.subspan(std::min(kGroup, pretokens.size()))) {
    const auto group = pretokens.first(std::min(kGroup, pretokens.size()));
    for (std::size_t i = 0; i < group.size(); ++i) {
      hashes[i] = hash_of(group[i]);
      __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)]);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i].size() > 1 && group[i].size() <= longest) add_hashed(group[i], hashes[i], 1);
    }
  }
}

void PretokenCounts::add_hashed(std::string_view pretoken, std::uint32_t hash, std::int64_t count) {
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].number != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash != hash) continue;
    CountedPretoken& known = counted_[slots_[at].number - 1];
    if (known.text != pretoken) continue;
    known.count += count;
    return;
  }
  counted_.push_back({stored(pretoken), count});
  slots_[at] = {hash, static_cast<std::uint32_t>(counted_.size())};
  if (2 * counted_.size() > slots_.size()) rehash(2 * slots_.size());
}

std::string_view PretokenCounts::stored(std::string_view text) {
  if (text.size() > left_) {
    left_ = std::max(kBlockBytes, text.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(left_));
  }
  char* const copy = blocks_.back().get() + (std::max(kBlockBytes, text.size()) - left_);
  std::memcpy(copy, text.data(), text.size());
  left_ -= text.size();
  return {copy, text.size()};
}

void PretokenCounts::rehash(std::size_t num_slots) {
  slots_.assign(num_slots, Slot());
  for (std::size_t i = 0; i < counted_.size(); ++i) {
    const std::uint32_t hash = hash_of(counted_[i].text);
    std::size_t at = hash & (num_slots - 1);
    while (slots_[at].number != 0) at = (at + 1) & (num_slots - 1);
    slots_[at] = {hash, static_cast<std::uint32_t>(i + 1)};
  }
}

void PretokenCounts::drop_rarest(std::size_t most) {
  if (size() <= most) return;
  for (std::int64_t rarest = 1; size() > most; rarest *= 2) {
    std::erase_if(counted_, [&](const CountedPretoken& one) { return one.count <= rarest; });
  }
  PretokenCounts kept;
  for (const auto& [text, count] : counted_) kept.add(text, count);
  *this = std::move(kept);
}

}  // namespace kozero::io
