// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// json_files.hpp: whether a file is JSON lines, other JSON, or text, by its name and its beginning; rows as trees
// of bounded size; a visitor that keeps nothing.
//   an object on one line, and below it another one or nothing     JSON lines
//   an array, an object over several lines                         other JSON, which is refused: no text to train on
//   anything else                                                  text, unless the name says that it is JSON
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/data/not_text.hpp"

namespace kozero::data {

struct JsonFile {
  enum class Kind { none, lines, other } kind = Kind::none;
  bool is_named = false;  ///< the name says that it is JSON
  Objection objection{};  ///< to other JSON
};

/// `head`: the first bytes, decompressed; `is_whole`: they are all. .jsonl and .ndjson are JSON lines, .json is JSON.
JsonFile json_file(std::string_view head, bool is_whole, const std::string& path);

/// Whether the name is that of JSON lines or JSON, compressed or not.
bool is_named_json(const std::string& path);

/// Whether the first line of the file that is not empty is JSON. Throws Error(input) if it cannot be read.
bool begins_with_object(const std::string& path);

/// Why a row is not JSON, by the library's `problem` at byte `position` (from 1) of the row.
std::string not_json(std::string_view row, std::size_t position, std::string_view problem);

/// "the key \"text\" twice"
std::string key_twice(const std::string& key);

/// A row, which is an object, as a tree: it takes some hundred bytes per value, so their number has a limit. Throws
/// BadRecord, also for a key that an object has twice.
nlohmann::json json_tree(std::string_view row);

/// Accepts all JSON and keeps nothing: for visitors of a part of it.
class JsonVisitor : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const std::string& /*digits*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool key(std::string& /*name*/) override { return true; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*problem*/) override {
    return false;
  }
};

}  // namespace kozero::data
