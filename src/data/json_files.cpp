// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// json_files.cpp: the kinds of JSON files, and the trees of their rows.
#include "src/data/json_files.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "src/data/records.hpp"

namespace kozero::data {
namespace {

using Json = nlohmann::json;
using Kind = JsonFile::Kind;

constexpr std::string_view kSpace = " \t\r\n";

std::string extension_of(const std::string& path) {
  std::filesystem::path name = path;
  if (name.extension() == ".gz" || name.extension() == ".zst") name.replace_extension();
  return name.extension().string();
}

bool is_named_lines(const std::string& path) {
  const std::string extension = extension_of(path);
  return extension == ".jsonl" || extension == ".ndjson";
}

std::string_view without_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

/// Whether the text is JSON; if it is the beginning of a longer one, whether it is as far as it goes.
bool is_json(std::string_view text, bool is_whole) {
  constexpr std::size_t kCharacter = 4;  // a character that is cut is an error where it begins
  if (is_whole) return Json::accept(text);
  struct Position final : JsonVisitor {
    std::size_t position = 0;
    bool parse_error(std::size_t at, const std::string& /*token*/, const Json::exception& /*problem*/) override {
      position = at;
      return false;
    }
  } parser;
  return Json::sax_parse(text, &parser) || parser.position + kCharacter > text.size();
}

JsonFile other(bool is_named, const std::string& format, const std::string& remedy) {
  return {Kind::other, is_named, not_text(format, remedy)};
}

JsonFile array_of(std::string_view text, bool is_named) {
  const std::string_view first = without_space(text.substr(1));
  if (first.starts_with('{')) {
    return other(is_named, "a JSON array of objects", "write JSON lines: jq -c '.[]' FILE >NEW.jsonl");
  }
  return other(is_named, "a JSON array",
               "write JSON lines, for example of an array of texts: jq -c '.[] | {text: .}' "
               "FILE >NEW.jsonl");
}

}  // namespace

bool is_named_json(const std::string& path) { return is_named_lines(path) || extension_of(path) == ".json"; }

JsonFile json_file(std::string_view head, bool is_whole, const std::string& path) {
  const bool is_named = is_named_json(path);
  const JsonFile lines{Kind::lines, is_named};
  const JsonFile by_name{is_named_lines(path) ? Kind::lines : Kind::none, is_named};
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::string_view text = without_space(head);
  const std::string_view line = text.substr(0, text.find('\n'));
  if (const std::size_t cr = text.find('\r'); cr != std::string_view::npos && line.size() == text.size()) {
    if (text.starts_with('{') && without_space(text.substr(cr)).starts_with('{') && Json::accept(text.substr(0, cr))) {
      return other(is_named, "JSON lines that end in CR alone", "write LF: tr '\\r' '\\n' <FILE >NEW");
    }
  }
  if (text.starts_with('[') && is_json(text, is_whole)) return array_of(text, is_named);
  if (text.starts_with('{')) {
    const bool is_cut = line.size() == text.size() && !is_whole;
    if (is_cut && by_name.kind == Kind::lines) return lines;
    if (is_cut ? is_json(line, false) && begins_with_object(path) : Json::accept(line)) {
      const std::string_view next = without_space(text.substr(line.size()));
      return is_named || next.empty() || next.starts_with('{') ? lines : by_name;
    }
    if (is_json(text, is_whole)) {
      return other(is_named, "a JSON object over several lines", "write JSON lines: jq -c . FILE >NEW.jsonl");
    }
  }
  if (by_name.kind == Kind::lines || !is_named || text.empty()) return by_name;
  if (!text.starts_with('{') && !text.starts_with('[') && !is_json(text, is_whole)) return by_name;
  return other(true, "named .json, but not JSON lines", "if it is text, name it .txt");
}

std::string not_json(std::string_view row, std::size_t position, std::string_view problem) {
  const auto says = [&](std::string_view words) { return problem.find(words) != std::string_view::npos; };
  if (says("UTF-8")) return fmt::format("not UTF-8 at byte {} of the row", position);
  if (says("surrogate")) {
    return fmt::format("a lone surrogate, half of a character, at byte {} of the row", position);
  }
  if (says("overflow")) return fmt::format("a number that is too large, at byte {} of the row", position);
  const std::string_view rest = row.substr(std::min(position - std::min<std::size_t>(position, 1), row.size()));
  for (const std::string_view word : {"NaN", "Infinity"}) {
    if (rest.starts_with(word)) return fmt::format("{} at byte {} of the row is not JSON; null is", word, position);
  }
  const std::size_t cr = row.find('\r');
  if (cr != std::string_view::npos &&
      row.substr(std::min(row.find_first_not_of("\r", cr), row.size())).starts_with('{')) {
    return "rows end in CR alone; write LF: tr '\\r' '\\n' <FILE >NEW";
  }
  return fmt::format("not JSON from byte {} of the row on", position);
}

std::string key_twice(const std::string& key) { return fmt::format("the key \"{}\" twice", key); }

nlohmann::json json_tree(std::string_view row) {
  constexpr std::int64_t kMostValues = 200'000;
  std::int64_t values = 0;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto count = [&](int /*depth*/, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw BadRecord(key_twice(value.get<std::string>()));
    }
    if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end) return true;
    if (++values > kMostValues) throw BadRecord(fmt::format("more than {} keys and values", kMostValues));
    return true;
  };
  try {
    Json record = Json::parse(row, count);
    if (!record.is_object()) throw BadRecord("not a JSON object");
    return record;
  } catch (const Json::parse_error& problem) {
    throw BadRecord(not_json(row, problem.byte, problem.what()));
  } catch (const Json::out_of_range&) {
    throw BadRecord("a number that is too large");
  }
}

}  // namespace kozero::data
