// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tuning_file.cpp: writes and reads the file of `kozero bench tune`.
#include "io/deck/tuning_file.hpp"
#include <kozero/core/error.hpp>
#include "io/deck/schema.hpp"
#include "io/deck/toml_keys.hpp"
#include "io/posix/readable.hpp"

namespace kozero::io {
namespace {

constexpr const char* kDevice = "device";
constexpr const char* kLibrary = "library";
constexpr const char* kThreads = "threads";
constexpr const char* kProducts = "products";

[[noreturn]] void refuse_file(const std::string& where, const std::string& why) {
  throw Error(Failure::input, on_one_line(where + ": no tuning file: " + why + "; `kozero bench tune` writes one"));
}

std::string line_of(const std::string& path, const toml::source_region& region) {
  return path + ":" + std::to_string(region.begin.line);
}

toml::table parsed(const std::string& text, const std::string& path) {
  if (const auto line = line_too_deep(text)) refuse_file(path + ":" + std::to_string(*line), "it nests too deep");
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    refuse_file(line_of(path, error.source()), std::string(error.description()));
  }
}

/// Returns the text, which messages repeat; refuses control characters, so that a message stays on one line.
std::string one_line(const std::string& text, const std::string& where) {
  if (on_one_line(text) != text) refuse_file(where, "a text has a control character: " + toml_string(text));
  return text;
}

std::string text_at(const toml::table& table, const char* key, const std::string& path) {
  const auto value = table[key].value_exact<std::string>();
  if (!value || value->empty()) refuse_file(path, std::string("it has no ") + key + " = \"...\"");
  return one_line(*value, path);
}

void refuse_others(const toml::table& table, const std::string& path) {
  for (const auto& [key, value] : table) {
    if (key == kDevice || key == kLibrary || key == kThreads || key == kProducts) continue;
    refuse_file(line_of(path, value.source()), "it has a key " + toml_string(std::string(key.str())));
  }
}

}  // namespace

std::string tuning_text(const TuningFile& tuning) {
  std::string text =
      "# How each kind of matrix product is computed: measured by `kozero bench tune`, read by run.tuning.\n";
  const auto add = [&](const std::string& key, const std::string& value) { text += key + " = " + value + "\n"; };
  add(kDevice, toml_string(tuning.device));
  add(kLibrary, toml_string(tuning.library));
  if (tuning.threads > 0) add(kThreads, std::to_string(tuning.threads));
  text += std::string("\n[") + kProducts + "]\n";
  for (const auto& [kind, algorithm] : tuning.products) add(toml_string(kind), toml_string(algorithm));
  return text;
}

TuningFile parse_tuning(const std::string& text, const std::string& path) {
  const toml::table table = parsed(text, path);
  refuse_others(table, path);
  TuningFile tuning{
      text_at(table, kDevice, path), text_at(table, kLibrary, path), table[kThreads].value_or(std::int64_t{0}), {}};
  const toml::table* const products = table[kProducts].as_table();
  if (products == nullptr) refuse_file(path, std::string("it has no [") + kProducts + "]");
  for (const auto& [kind, algorithm] : *products) {
    const std::string where = line_of(path, algorithm.source());
    const auto name = algorithm.value_exact<std::string>();
    if (!name) refuse_file(where, "a product's algorithm is a string");
    tuning.products.emplace(one_line(std::string(kind.str()), where), one_line(*name, where));
  }
  return tuning;
}

}  // namespace kozero::io
