// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// document_rules.cpp: reads the filter of a deck, and says what was left out of a corpus.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <array>
#include <charconv>
#include <cmath>
#include <kozero/data/document_rules.hpp>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"

namespace kozero::data {
namespace {

using Comparison = NumberFilter::Comparison;

// Longer signs first: "<=" begins with "<".
constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSigns = {{{"<=", Comparison::at_most},
                                                                            {">=", Comparison::at_least},
                                                                            {"==", Comparison::equal},
                                                                            {"!=", Comparison::not_equal},
                                                                            {"<", Comparison::less},
                                                                            {">", Comparison::greater}}};

constexpr std::size_t kMostNamed = 3;  // of the places of bad records, and of files

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

bool NumberFilter::keeps(long double number) const {
  switch (comparison) {
    case Comparison::less:
      return number < bound;
    case Comparison::at_most:
      return number <= bound;
    case Comparison::equal:
      return number == bound;
    case Comparison::not_equal:
      return number < bound || number > bound;  // not NaN
    case Comparison::at_least:
      return number >= bound;
    case Comparison::greater:
      return number > bound;
  }
  return false;
}

NumberFilter parse_filter(const std::string& text, const std::string& key) {
  NumberFilter filter;
  if (text.empty()) return filter;
  const std::string_view all = text;
  const std::size_t at = all.find_first_of("<>=!");
  for (const auto& [sign, comparison] : kSigns) {
    if (at == std::string_view::npos || !all.substr(at).starts_with(sign)) continue;
    const std::string_view number = trimmed(all.substr(at + sign.size()));
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), filter.bound);
    filter.column = trimmed(all.substr(0, at));
    filter.comparison = comparison;
    const bool is_number = problem == std::errc() && end == number.data() + number.size();
    if (is_number && std::isfinite(filter.bound) && !filter.column.empty()) return filter;
    break;
  }
  throw Error(Failure::deck,
              fmt::format("{} = \"{}\": accepted: COLUMN SIGN NUMBER, such as \"int_score >= 3\"; signs: "
                          "<, <=, ==, !=, >=, >",
                          key, io::on_one_line(text)));
}

void DocumentCounts::add_bad(const std::string& place) {
  ++bad;
  if (bad_places.size() < kMostNamed) bad_places.push_back(io::on_one_line(place));
}

void DocumentCounts::add_unnamed_json(const std::string& path) {
  ++unnamed_json;
  if (unnamed_json_files.size() < kMostNamed) unnamed_json_files.push_back(io::on_one_line(path));
}

std::string listed(const DocumentCounts& counts) {
  std::vector<std::string> parts;
  const auto count = [&](std::int64_t number, const char* what) {
    if (number > 0) parts.push_back(fmt::format("{} {}", number, what));
  };
  count(counts.filtered, "filtered");
  count(counts.duplicates, "duplicate");
  count(counts.empty, "empty");
  count(counts.bad, "bad");
  std::string text = parts.empty() ? "" : fmt::format("left out records: {}", fmt::join(parts, ", "));
  if (counts.bad > 0) {
    text += fmt::format(" ({}{})", fmt::join(counts.bad_places, "; "),
                        counts.bad > std::ssize(counts.bad_places) ? "; ..." : "");
  }
  return text;
}

std::string listed_unnamed_json(const DocumentCounts& counts) {
  if (counts.unnamed_json == 0) return "";
  return fmt::format("read as JSON lines in spite of the name: {}{}", fmt::join(counts.unnamed_json_files, ", "),
                     counts.unnamed_json > std::ssize(counts.unnamed_json_files) ? ", ..." : "");
}

}  // namespace kozero::data
