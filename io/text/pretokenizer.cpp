// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretokenizer.cpp: split patterns by rule or by PCRE2, and GPT-2's byte alphabet.
#include <algorithm>
#include <array>
#include <memory>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

namespace {

std::string pcre2_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Replaces \s and \S by Unicode's White_Space property: PCRE2's \s includes U+180E, and Oniguruma's does not.
std::string with_unicode_space(std::string expression) {
  for (std::size_t at = 0; (at = expression.find('\\', at)) != std::string::npos; at += 2) {
    const char letter = at + 1 < expression.size() ? expression[at + 1] : '\0';
    if (letter == 's') expression.replace(at, 2, R"(\p{White_Space})");
    if (letter == 'S') expression.replace(at, 2, R"(\P{White_Space})");
  }
  return expression;
}

/// Text that is split at a time; its planes stay in the first-level cache.
constexpr std::size_t kWindowBytes = 8192;
constexpr std::size_t kPretokensAtATime = 1024;

constexpr int kFirstStandIn = 0x100;

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The character (below U+0180) of each byte.
std::array<int, 256> characters() {
  std::array<int, 256> of{};
  int stand_in = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte) {
    of[static_cast<std::size_t>(byte)] = stands_for_itself(byte) ? byte : stand_in++;
  }
  return of;
}

const std::array<int, 256>& character_of_byte() {
  static const auto table = characters();
  return table;
}

/// The byte of each character below U+0180, or -1.
const std::array<int, 0x180>& byte_of_character() {
  static const auto table = [] {
    std::array<int, 0x180> of{};
    of.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      of[static_cast<std::size_t>(character_of_byte()[static_cast<std::size_t>(byte)])] = byte;
    }
    return of;
  }();
  return table;
}

}  // namespace

const char* const kGpt2Split = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::array<PublishedSplit, 4> kPublishedSplits = {{
    {"GPT-2", kGpt2Split, false, SplitRule::gpt2},
    {"Llama 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, SplitRule::llama3},
    {"Qwen 2 and 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, SplitRule::qwen2},
    {"o200k", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

const PublishedSplit& published_split(const std::string& name) {
  const auto found = std::find_if(kPublishedSplits.begin(), kPublishedSplits.end(),
                                  [&](const PublishedSplit& split) { return split.name == name; });
  require(found != kPublishedSplits.end() || name.empty(), "no published split " + name);
  return found == kPublishedSplits.end() ? kPublishedSplits.front() : *found;
}

struct SplitPattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(const std::string& expression) {
  const auto published = std::find_if(kPublishedSplits.begin(), kPublishedSplits.end(),
                                      [&](const PublishedSplit& split) { return expression == split.expression; });
  if (published != kPublishedSplits.end()) rule_ = published->rule;
  if (rule_) return;
  compiled_ = std::make_unique<Compiled>();
  int problem = 0;
  PCRE2_SIZE offset = 0;
  const std::string unicode = with_unicode_space(expression);
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(unicode.data()), unicode.size(), PCRE2_UTF | PCRE2_UCP,
                                  &problem, &offset, nullptr);
  if (compiled_->code == nullptr) {
    throw Error(Failure::input, "split pattern: " + pcre2_text(problem) + " at offset " + std::to_string(offset));
  }
  // If PCRE2 was built without its just-in-time compiler, the call fails and matching is only slower.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

struct PretokenSplitter::Match {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  ~Match() { pcre2_match_data_free(data); }
};

PretokenSplitter::PretokenSplitter(const SplitPattern& pattern) : pattern_(pattern) {
  if (pattern.rule_) {
    starts_.emplace(*pattern.rule_);
  } else {
    match_ = std::make_unique<Match>();
    require(match_->data != nullptr, "split pattern: out of memory");
  }
}

PretokenSplitter::~PretokenSplitter() = default;

/// The end of the first pretoken of a text that is not empty.
std::size_t PretokenSplitter::end_of_match(std::string_view text) const {
  const int result = pcre2_match(pattern_.compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match_->data, nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return text.size();
  // 0 means that there was no room for the groups; the whole match is stored even then.
  if (result < 0) throw Error(Failure::input, "split pattern: " + pcre2_text(result));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_->data);
  return range[0] > 0 ? range[0] : range[1];
}

std::span<const std::string_view> PretokenSplitter::next_by_rule() {
  for (std::size_t window = kWindowBytes;; window *= 2) {
    const auto some = starts_->cut(rest_, window);
    if (some.empty() && !starts_->reached_end()) continue;
    if (!some.empty()) rest_.remove_prefix(static_cast<std::size_t>(some.back().end() - rest_.begin()));
    return some;
  }
}

std::span<const std::string_view> PretokenSplitter::next_by_expression() {
  if (num_valid_ == 0) num_valid_ = utf8_prefix(rest_);
  pretokens_.clear();
  while (num_valid_ > 0 && pretokens_.size() < kPretokensAtATime) {
    const std::size_t size = end_of_match(rest_.substr(0, num_valid_));
    pretokens_.push_back(rest_.substr(0, size));
    rest_.remove_prefix(size);
    num_valid_ -= size;
  }
  return pretokens_;
}

/// The bytes up to the next character.
std::span<const std::string_view> PretokenSplitter::next_not_utf8() {
  std::size_t end = 1;
  while (end < rest_.size() && utf8_character(rest_.substr(end)) == 0) ++end;
  pretokens_.assign(1, rest_.substr(0, end));
  rest_.remove_prefix(end);
  return pretokens_;
}

std::span<const std::string_view> PretokenSplitter::next() {
  if (rest_.empty()) return {};
  const auto some = starts_ ? next_by_rule() : next_by_expression();
  return some.empty() ? next_not_utf8() : some;
}

std::string to_visible(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const int character = character_of_byte()[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xC0 | (character >> 6)));
      text.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> from_visible(std::string_view visible) {
  std::string bytes;
  for (std::size_t i = 0; i < visible.size(); ++i) {
    int character = static_cast<unsigned char>(visible[i]);
    if (character >= 0x80) {
      if (character > 0xDF || i + 1 == visible.size()) return std::nullopt;
      character = ((character & 0x1F) << 6) | (static_cast<unsigned char>(visible[++i]) & 0x3F);
    }
    const int byte = character < 0x180 ? byte_of_character()[static_cast<std::size_t>(character)] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace kozero::io
