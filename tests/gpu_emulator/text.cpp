// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text.cpp: splits PTX into statements and words, and reads types, literals and declarations.
#include "text.hpp"

#include <algorithm>
#include <cctype>

#include "report.hpp"

namespace kozero::gpu_emulator {
namespace {

bool is_line(std::string_view statement) {
  return statement.starts_with(".loc") || statement.starts_with(".file") || statement.starts_with(".version") ||
         statement.starts_with(".target") || statement.starts_with(".address_size");
}

/// A brace that opens a body, not a vector of operands.
bool opens_body(std::string_view statement) {
  return statement.empty() || statement.find(".entry") != std::string_view::npos ||
         statement.find(".func") != std::string_view::npos || statement.starts_with(".section");
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> found;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : separator;
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c != separator || (depth > 0 && i < text.size())) continue;
    if (const auto part = trimmed(text.substr(begin, i - begin)); !part.empty()) found.push_back(part);
    begin = i + 1;
  }
  return found;
}

void for_each_statement(std::string_view ptx, const std::function<void(std::string_view, char)>& each) {
  std::size_t begin = 0;
  int braces = 0;  // open braces inside the statement
  const auto end = [&](std::size_t at, char how) {
    each(trimmed(ptx.substr(begin, at - begin)), how);
    begin = at + 1;
  };
  for (std::size_t i = 0; i < ptx.size(); ++i) {
    const char c = ptx[i];
    if (c == '/' && ptx.substr(i, 2) == "//") {
      const std::size_t newline = std::min(ptx.find('\n', i), ptx.size());
      if (trimmed(ptx.substr(begin, i - begin)).empty()) begin = newline;
      i = newline - 1;
    } else if (c == '"') {
      i = std::min(ptx.find('"', i + 1), ptx.size() - 1);
    } else if (c == '{' && !opens_body(trimmed(ptx.substr(begin, i - begin)))) {
      ++braces;
    } else if (c == '}' && braces > 0) {
      --braces;
    } else if (c == '{' || c == '}' || c == ';') {
      if (braces == 0) end(i, c);
    } else if (c == ':' && braces == 0 && trimmed(ptx.substr(begin, i - begin)).starts_with("$")) {
      end(i, c);
    } else if (c == '\n' && is_line(trimmed(ptx.substr(begin, i - begin)))) {
      end(i, c);
    }
  }
}

Declaration declaration(std::string_view statement) {
  Declaration read;
  if (const auto equals = statement.find('='); equals != std::string_view::npos) {
    read.initial = trimmed(statement.substr(equals + 1));
    statement = trimmed(statement.substr(0, equals));
  }
  std::uint64_t elements = 1;
  if (const auto bracket = statement.find('['); bracket != std::string_view::npos) {
    read.array = true;
    const auto extent = trimmed(statement.substr(bracket + 1, statement.find(']') - bracket - 1));
    elements = extent.empty() ? 0 : literal(extent);
    statement = statement.substr(0, bracket);
  }
  bool aligned = false;
  for (const auto word : parts(statement, ' ')) {
    for (const auto tabbed : parts(word, '\t')) {
      if (aligned)
        read.alignment = static_cast<std::uint32_t>(literal(tabbed));
      else if (tabbed == ".extern")
        read.external = true;
      else if (tabbed == ".shared" || tabbed == ".global" || tabbed == ".const" || tabbed == ".local" ||
               tabbed == ".param" || tabbed == ".reg")
        read.space = tabbed;
      else if (!tabbed.starts_with('.'))
        read.name = tabbed;
      else if (tabbed != ".align" && bytes_of_type(tabbed) != 0)
        read.type = tabbed;
      aligned = tabbed == ".align";
    }
  }
  const std::uint32_t element = std::max(bytes_of_type(read.type), 1U);
  read.bytes = static_cast<std::uint32_t>(element * elements);
  read.alignment = std::max(read.alignment, element);
  return read;
}

std::uint32_t bytes_of_type(std::string_view type) {
  if (type.starts_with('.')) type.remove_prefix(1);
  if (type == "pred") return 4;
  if (type == "f16x2" || type == "bf16x2") return 4;
  if (type.ends_with("8")) return 1;
  if (type.ends_with("16")) return 2;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("64")) return 8;
  return 0;
}

std::uint64_t literal(std::string_view text) {
  const std::string word(text);
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'd' || word[1] == 'F' || word[1] == 'D')) {
    return std::stoull(word.substr(2), nullptr, 16);
  }
  const bool negative = word.starts_with('-');
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(word.substr(negative ? 1 : 0), &used, 0);
  } catch (const std::exception&) {
    stop("PTX has '" + word + "' where a number is expected");
  }
  if (used + (negative ? 1 : 0) < word.size() && word.back() != 'U')
    stop("PTX has '" + word + "' where a number is expected");
  return negative ? ~value + 1 : value;
}

}  // namespace kozero::gpu_emulator
