// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretokenizer.cpp: NFC by utf8proc, split patterns by PCRE2, and GPT-2's byte alphabet.
#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "io/text/pretokenizer.hpp"

namespace kozero::io {

namespace {

/// The lead byte of U+0300, the first combining mark. Characters below it are in form C already.
constexpr unsigned char kFirstLead = 0xCC;

bool may_change(char byte) { return static_cast<unsigned char>(byte) >= kFirstLead; }
bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

/// Appends well-formed UTF-8 in form C.
void append_composed(std::string_view text, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  require(size >= 0, std::string("to_nfc: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

struct Range {
  std::int32_t first, last;
};

/// Marks of Unicode 10 to 15 that have a combining class or compose.
constexpr std::array<Range, 38> kLaterMarks = {
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
     {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
     {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
     {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
     {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}}};

bool is_later_mark(std::string_view character) {
  if (character.size() < 2) return false;
  std::int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(character.data()),
                   static_cast<utf8proc_ssize_t>(character.size()), &code);
  const auto range =
      std::partition_point(kLaterMarks.begin(), kLaterMarks.end(), [&](const Range& r) { return r.last < code; });
  return range != kLaterMarks.end() && range->first <= code;
}

/// Appends any bytes in form C, except later marks and bytes that are not UTF-8, which are appended unchanged.
void append_stretch(std::string_view text, std::string& out) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t character = utf8_character(text.substr(end));
    if (character > 0 && !is_later_mark(text.substr(end, character))) {
      end += character;
      continue;
    }
    const std::size_t kept = std::max<std::size_t>(character, 1);
    if (end > 0) append_composed(text.substr(0, end), out);
    out.append(text.substr(end, kept));
    text.remove_prefix(end + kept);
    end = 0;
  }
  if (end > 0) append_composed(text, out);
}

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

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (auto rest = text.begin(); rest != text.end();) {
    auto first = std::find_if(rest, text.end(), may_change);
    // Starts at an ASCII character, since ASCII never composes with what is before it.
    if (first != text.end() && first != rest) {
      for (--first; first != rest && !is_ascii(*first);) --first;
    }
    out.append(rest, first);
    auto end = first == text.end() ? first : std::find_if(first + 1, text.end(), is_ascii);
    append_stretch(std::string_view(first, end), out);
    rest = end;
  }
  return out;
}

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
