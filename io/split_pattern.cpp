// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include <kozero/core/error.hpp>
#include <kozero/io/split_pattern.hpp>
#include <kozero/io/utf8.hpp>

namespace kozero::io {

const char* const kGpt2Split = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::array<PublishedSplit, 4> kPublishedSplits = {{
    {"GPT-2", kGpt2Split},
    {"Llama 3", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"Qwen 2 and 3", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

namespace {

std::string pcre2_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// The expression with \s and \S by Unicode's White_Space: PCRE2's own \s counts U+180E, which Oniguruma's does not.
std::string with_unicode_space(std::string expression) {
  for (std::size_t at = 0; (at = expression.find('\\', at)) != std::string::npos; at += 2) {
    const char letter = at + 1 < expression.size() ? expression[at + 1] : '\0';
    if (letter == 's') expression.replace(at, 2, R"(\p{White_Space})");
    if (letter == 'S') expression.replace(at, 2, R"(\P{White_Space})");
  }
  return expression;
}

}  // namespace

struct SplitPattern::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  ~Compiled() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

SplitPattern::SplitPattern(const std::string& expression) : compiled_(std::make_unique<Compiled>()) {
  int problem = 0;
  PCRE2_SIZE offset = 0;
  const std::string unicode = with_unicode_space(expression);
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(unicode.data()), unicode.size(),
                                  PCRE2_UTF | PCRE2_UCP, &problem, &offset, nullptr);
  if (compiled_->code == nullptr) {
    throw Error(Failure::input, "split pattern: " + pcre2_text(problem) + " at offset " + std::to_string(offset));
  }
  // Where this build of PCRE2 has no just-in-time compiler the call fails and matching interprets: only slower.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
  compiled_->match = pcre2_match_data_create(1, nullptr);
  require(compiled_->match != nullptr, "split pattern: out of memory");
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

SplitPattern::Range SplitPattern::find(std::string_view text, std::size_t start) const {
  const int result = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, compiled_->match, nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
  // 0 means that groups found no room: the whole match is there all the same.
  if (result < 0) throw Error(Failure::input, "split pattern: " + pcre2_text(result));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(compiled_->match);
  return {range[0], range[1]};
}

std::size_t PieceSplitter::end_of_piece() {
  if (position_ == valid_end_) valid_end_ = position_ + utf8_prefix(text_.substr(position_));
  if (position_ == valid_end_) {
    std::size_t end = position_ + 1;
    while (end < text_.size() && utf8_character(text_.substr(end)) == 0) ++end;
    valid_end_ = end;
    return end;
  }
  const auto match = pattern_.find(text_.substr(0, valid_end_), position_);
  return match.begin > position_ ? match.begin : match.end;
}

bool PieceSplitter::next(std::string_view& piece) {
  if (position_ == text_.size()) return false;
  const std::size_t end = end_of_piece();
  piece = text_.substr(position_, end - position_);
  position_ = end;
  return true;
}

}  // namespace kozero::io
