// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <limits>

#include <kozero/core/error.hpp>
#include "io/run/metrics_row.hpp"

namespace kozero::io {

namespace {

/// The text as a number, whole; nothing for null and anything else.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// Walks over the members of an object's text, without what is nested in them.
class Members {
 public:
  explicit Members(std::string_view object) : rest_(trimmed(object)) {}

  /// The next "key": value; false at the end, or where the text is no object.
  bool next(std::string_view& key, std::string_view& value) {
    if (!rest_.starts_with('{') && !rest_.starts_with(',')) return false;
    std::string_view text = trimmed(rest_.substr(1));
    const std::size_t end = text.find('"', 1);
    if (!text.starts_with('"') || end == std::string_view::npos) return false;
    key = text.substr(1, end - 1);
    text = trimmed(text.substr(end + 1));
    if (!text.starts_with(':')) return false;
    rest_ = text.substr(1);
    const std::size_t extent = extent_of_value();
    value = trimmed(rest_.substr(0, extent));
    rest_.remove_prefix(extent);
    return !rest_.empty();
  }
  [[nodiscard]] bool is_whole() const { return rest_ == "}"; }

 private:
  /// Up to the comma or brace behind the value.
  [[nodiscard]] std::size_t extent_of_value() const {
    int depth = 0;
    bool in_text = false;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const char letter = rest_[i];
      if (in_text) {
        if (letter == '\\') ++i;
        in_text = letter != '"';
        continue;
      }
      if (letter == '"') in_text = true;
      if (letter == '{' || letter == '[') ++depth;
      if (depth == 0 && (letter == ',' || letter == '}')) return i;
      if (letter == '}' || letter == ']') --depth;
    }
    return rest_.size();
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::int64_t> read_metrics_row(std::string_view line, std::span<const std::string_view> keys,
                                             std::span<double> values) {
  require(keys.size() == values.size(), "read_metrics_row: as many values as keys");
  std::fill(values.begin(), values.end(), std::numeric_limits<double>::quiet_NaN());
  std::optional<std::int64_t> step;
  Members members(line);
  for (std::string_view key, value; members.next(key, value);) {
    if (key == "step") step = number_of<std::int64_t>(value);
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) continue;
    if (const auto number = number_of<double>(value)) values[static_cast<std::size_t>(found - keys.begin())] = *number;
  }
  return members.is_whole() ? step : std::nullopt;
}

}  // namespace kozero::io
