// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/io/added_tokens.hpp>

namespace kozero::io {

namespace {

unsigned char byte_at(std::string_view text, std::size_t place) { return static_cast<unsigned char>(text[place]); }

}  // namespace

AddedTokens::AddedTokens(std::vector<std::pair<std::string, Token>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) {
    require(!text.empty(), "AddedTokens: an empty text");
    begins_[byte_at(text, 0)] = true;
  }
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, std::size_t begin) const {
  Match best{begin, begin, -1};
  auto low = tokens_.begin(), high = tokens_.end();  // those that agree with the text so far
  for (std::size_t length = 0; low != high; ++length) {
    if (low->first.size() == length) {
      best = {begin, begin + length, low->second};
      if (++low == high) break;
    }
    if (begin + length == text.size()) break;
    const unsigned char byte = byte_at(text, begin + length);
    low = std::partition_point(low, high, [&](const auto& token) { return byte_at(token.first, length) < byte; });
    high = std::partition_point(low, high, [&](const auto& token) { return byte_at(token.first, length) == byte; });
  }
  return best;
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t start) const {
  if (!tokens_.empty()) {
    for (std::size_t begin = start; begin < text.size(); ++begin) {
      if (!begins_[byte_at(text, begin)]) continue;
      if (const Match match = longest_at(text, begin); match.id >= 0) return match;
    }
  }
  return {text.size(), text.size(), -1};
}

}  // namespace kozero::io
