// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// pretoken_starts.cpp: characters to planes, and the split patterns as operations on planes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "io/text/character_classes.hpp"
#include "io/text/pretoken_starts.hpp"

namespace kozero::io {
namespace {

constexpr std::size_t kBits = 64;
/// A contraction has at most three characters, and the character after it starts a pretoken.
constexpr std::size_t kLookahead = 4;

bool is_ascii(const unsigned char* bytes) {
  unsigned char any = 0;
  for (std::size_t i = 0; i < kBits; ++i) any |= bytes[i];
  return any < 0x80;
}

/// Bit 8 r + c of the result is bit 8 c + r of `rows`.
std::uint64_t transposed(std::uint64_t rows) {
  const auto swap = [&](int distance, std::uint64_t mask) {
    const std::uint64_t changed = (rows ^ (rows >> distance)) & mask;
    rows ^= changed ^ (changed << distance);
  };
  swap(7, 0x00AA00AA00AA00AAULL);
  swap(14, 0x0000CCCC0000CCCCULL);
  swap(28, 0x00000000F0F0F0F0ULL);
  return rows;
}

/// The bits of the neighbors: bit i is that of character i - distance, or of character i + 1.
std::uint64_t before(std::uint64_t previous, std::uint64_t here, int distance = 1) {
  return (here << distance) | (previous >> (64 - distance));
}
std::uint64_t after(std::uint64_t here, std::uint64_t next) { return (here >> 1) | (next << 63); }

/// The runs of set bits that begin at a bit of `first`.
std::uint64_t runs_from(std::uint64_t first, std::uint64_t set) { return ((set + first) ^ set) & set; }

/// The first character of each run of numbers, and every third after it.
std::uint64_t starts_of_threes(std::uint64_t previous, std::uint64_t here, std::uint64_t previous_starts) {
  const std::uint64_t follows = here & before(previous, here);
  const std::uint64_t same_run = follows & before(previous, here, 2) & before(previous, here, 3);
  std::uint64_t added = (here & ~follows) | ((previous_starts >> 61) & same_run), starts = 0;
  for (; added != 0; added = (added << 3) & same_run) starts |= added;
  return starts;
}

template <class Visit>
void for_each_bit(std::uint64_t bits, const Visit& visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
}

/// The letters after the apostrophe of 's 't 'm 'd 're 've 'll, or 0. `text` begins after the apostrophe.
std::size_t contraction_letters(std::string_view text, bool any_case) {
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(0), second = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  if (any_case && text.starts_with("\xC5\xBF")) return 1;  // U+017F is an s in another case
  if ((first == 'r' || first == 'v') && second == 'e') return 2;
  return first == 'l' && second == 'l' ? 2 : 0;
}

}  // namespace

/// Whole blocks of ASCII go past the window's end.
void PretokenStarts::read_characters(std::string_view text, std::size_t window) {
  window = std::min(window, text.size());
  if (classes_.size() < window + 2 * kBits) {
    classes_.resize(window + 2 * kBits);
    offsets_.resize(window + 2 * kBits);
  }
  num_characters_ = num_bytes_ = 0;
  reached_end_ = false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  while (num_bytes_ < window && !reached_end_) {
    if (num_bytes_ + kBits > text.size() || !is_ascii(bytes + num_bytes_)) {
      read_block(text, std::min(num_bytes_ + kBits, window));
      continue;
    }
    std::uint8_t* classes = classes_.data() + num_characters_;
    std::uint32_t* offsets = offsets_.data() + num_characters_;
    const auto first = static_cast<std::uint32_t>(num_bytes_);
    for (std::size_t i = 0; i < kBits; ++i) classes[i] = ascii_class(bytes[first + i]);
    for (std::uint32_t i = 0; i < kBits; ++i) offsets[i] = first + i;
    num_bytes_ += kBits;
    num_characters_ += kBits;
  }
  reached_end_ = reached_end_ || num_bytes_ == text.size();
  offsets_[num_characters_] = static_cast<std::uint32_t>(num_bytes_);
  std::memset(classes_.data() + num_characters_, 0, kBits);
}

/// Reads characters of any kind, up to the first that reaches `end`.
void PretokenStarts::read_block(std::string_view text, std::size_t end) {
  const auto& table = character_classes();
  std::size_t at = num_bytes_, count = num_characters_;
  for (std::size_t num_bytes = 1; at < end; at += num_bytes, ++count) {
    std::uint32_t code = static_cast<unsigned char>(text[at]);
    num_bytes = 1;
    if (code >= 0x80) {
      const auto character = decode_character(text.substr(at));
      code = character.code;
      num_bytes = character.num_bytes;
    }
    if (num_bytes == 0) {
      reached_end_ = true;
      break;
    }
    classes_[count] = code < table.size() ? table[code] : kCharacter;
    offsets_[count] = static_cast<std::uint32_t>(at);
  }
  num_bytes_ = at;
  num_characters_ = count;
}

void PretokenStarts::make_planes() {
  const std::size_t num_words = (num_characters_ + kBits - 1) / kBits;
  planes_.resize(num_words + 2);
  planes_[num_words + 1] = Planes();
  for (std::size_t word = 0; word < num_words; ++word) {
    std::array<std::uint64_t, 8> rows;  // row j: the eight planes of characters 8 j to 8 j + 7, a byte each
    std::memcpy(rows.data(), classes_.data() + word * kBits, kBits);
    for (auto& row : rows) row = transposed(row);
    std::array<std::uint64_t, 8> plane{};
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t k = 0; k < 8; ++k) plane[k] |= ((rows[j] >> (8 * k)) & 0xFF) << (8 * j);
    }
    planes_[word + 1] = {plane[0], plane[1], plane[2], plane[3], plane[4], plane[5], plane[6], 0, 0};
  }
}

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// A run of one class starts a pretoken, together with a blank before it. White space starts one at the first and at
/// the last character of its run. mark_contractions follows.
void PretokenStarts::mark_gpt2() {
  for (std::size_t word = 1; word + 1 < planes_.size(); ++word) {
    const Planes &previous = planes_[word - 1], &next = planes_[word + 1];
    Planes& here = planes_[word];
    const std::uint64_t other = here.other();
    const std::uint64_t runs = (here.letter & ~before(previous.letter, here.letter)) |
                               (here.number & ~before(previous.number, here.number)) |
                               (other & ~before(previous.other(), other));
    const std::uint64_t first_or_last = ~before(previous.space, here.space) | after(here.visible(), next.visible());
    here.starts = (runs & ~before(previous.blank, here.blank)) | (here.space & first_or_last);
  }
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// Letters take the white space before them, unless it is a newline, or a lone other character before them that no
/// blank comes before. Others take a blank before them and the newlines after them, which are no white space for the
/// rest of the pattern. Qwen's pattern has \p{N} for \p{N}{1,3}. mark_tails and mark_contractions follow.
void PretokenStarts::mark_llama3() {
  std::uint64_t taken_before = 0, lone_before = 0, numbers_before = 0;
  for (std::size_t word = 1; word + 1 < planes_.size(); ++word) {
    const Planes &previous = planes_[word - 1], &next = planes_[word + 1];
    Planes& here = planes_[word];
    const std::uint64_t other = here.other(), after_other = before(previous.other(), other);
    const std::uint64_t taken = runs_from(here.newline & (after_other | (taken_before >> 63)), here.newline);
    const std::uint64_t space = here.space & ~taken;
    const std::uint64_t first_space = space & ~before(previous.space & ~taken_before, space);
    const std::uint64_t last_space = space & ~here.newline & after(here.visible(), next.visible());
    const std::uint64_t others = other & ~after_other & ~before(previous.blank, here.blank);
    const std::uint64_t lone = others & after(here.letter, next.letter);
    const std::uint64_t letters = here.letter & ~before(previous.letter, here.letter) & ~before(lone_before, lone) &
                                  ~before(previous.space & ~previous.newline, here.space & ~here.newline);
    const std::uint64_t numbers =
        rule_ == SplitRule::qwen2 ? here.number : starts_of_threes(previous.number, here.number, numbers_before);
    here.starts = letters | numbers | others | first_space | last_space;
    here.open_newline = here.newline & ~taken;
    taken_before = taken;
    lone_before = lone;
    numbers_before = numbers;
  }
}

/// \s*[\r\n]+ ends with the last newline of white space, so a pretoken starts after it.
void PretokenStarts::mark_tails() {
  for (std::size_t word = 1; word + 1 < planes_.size(); ++word) {
    Planes& here = planes_[word];
    const std::uint64_t tails = here.space & ~here.newline & before(planes_[word - 1].open_newline, here.open_newline);
    for_each_bit(tails, [&](std::size_t bit) {
      std::size_t end = word;  // the first character that is a newline or visible
      std::uint64_t stops = (here.newline | ~here.space) & (~std::uint64_t{0} << bit);
      while (stops == 0) {
        ++end;
        stops = planes_[end].newline | ~planes_[end].space;
      }
      const std::uint64_t stop = stops & (~stops + 1);
      if ((stop & planes_[end].newline) == 0) here.starts |= std::uint64_t{1} << bit;
    });
  }
}

void PretokenStarts::set_start(std::size_t character, bool is_start) {
  const std::uint64_t bit = std::uint64_t{1} << (character % kBits);
  auto& starts = planes_[character / kBits + 1].starts;
  starts = is_start ? starts | bit : starts & ~bit;
}

void PretokenStarts::mark_contractions(std::string_view text) {
  const bool any_case = rule_ != SplitRule::gpt2;
  for (std::size_t word = 1; word + 1 < planes_.size(); ++word) {
    const Planes& here = planes_[word];
    const std::uint64_t apostrophes = here.apostrophe & here.starts & after(here.letter, planes_[word + 1].letter);
    for_each_bit(apostrophes, [&](std::size_t bit) {
      const std::size_t character = (word - 1) * kBits + bit;
      const std::size_t letters = contraction_letters(text.substr(offsets_[character] + 1), any_case);
      if (letters == 0) return;
      set_start(character + 1, false);
      if (character + 1 + letters < num_characters_) set_start(character + 1 + letters, true);
    });
  }
}

/// The last start that text after the window does not change: not in white space that touches the window's end, and not
/// within reach of a contraction.
std::size_t PretokenStarts::last_certain_start() const {
  std::size_t end = num_characters_;
  while (end > 0 && (classes_[end - 1] & kSpace) != 0) --end;
  if (num_characters_ < kLookahead) return 0;
  end = std::min(end, num_characters_ - kLookahead);
  std::size_t word = end / kBits;
  std::uint64_t starts = planes_[word + 1].starts & (~std::uint64_t{0} >> (kBits - 1 - end % kBits));
  while (starts == 0 && word > 0) starts = planes_[word--].starts;
  return starts == 0 ? 0 : word * kBits + static_cast<std::size_t>(std::bit_width(starts)) - 1;
}

/// The pretokens before the one that starts at `last`, and that one too if the text ends here.
void PretokenStarts::collect(std::string_view text, std::size_t last) {
  if (pretokens_.size() < last + 1) pretokens_.resize(last + 1);
  std::string_view* pretoken = pretokens_.data();
  const char* begin = text.data();
  const auto add = [&](const char* end) {
    *pretoken++ = std::string_view(begin, static_cast<std::size_t>(end - begin));
    begin = end;
  };
  for (std::size_t word = 0; word * kBits <= last; ++word) {
    std::uint64_t starts = planes_[word + 1].starts;
    if (word == 0) starts &= ~std::uint64_t{1};
    if (last - word * kBits < kBits - 1) starts &= (std::uint64_t{2} << (last - word * kBits)) - 1;
    for_each_bit(starts, [&](std::size_t bit) { add(text.data() + offsets_[word * kBits + bit]); });
  }
  if (reached_end_) add(text.data() + num_bytes_);
  num_pretokens_ = static_cast<std::size_t>(pretoken - pretokens_.data());
}

std::span<const std::string_view> PretokenStarts::cut(std::string_view text, std::size_t window) {
  read_characters(text, window);
  if (num_characters_ == 0) return {};
  make_planes();
  if (rule_ == SplitRule::gpt2) {
    mark_gpt2();
  } else {
    mark_llama3();
    mark_tails();
  }
  mark_contractions(text.substr(0, num_bytes_));
  collect(text, reached_end_ ? num_characters_ - 1 : last_certain_start());
  return std::span(pretokens_).first(num_pretokens_);
}

}  // namespace kozero::io
