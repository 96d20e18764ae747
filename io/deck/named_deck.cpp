// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// named_deck.cpp: the text of a command's deck, from its file or from the copy of the command that started this one.
#include <cstdlib>
#include <filesystem>

#include <kozero/core/error.hpp>
#include "io/deck/check.hpp"
#include "io/deck/named_deck.hpp"
#include "io/posix/block_hashes.hpp"
#include "io/posix/named_file.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::io {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The copy's text; "" if there is none yet.
std::string text_of_copy() {
  const std::string copy = variable(kDeckCopy);
  return copy.empty() || !is_there(copy) ? "" : read_whole_file(copy, kMaxDeckBytes);
}

}  // namespace

std::string text_of_deck(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::string inside = (std::filesystem::path(path) / kDeckFile).string();
    refuse(path, "",
           "a folder, not a deck; accepted is a TOML file" +
               (std::filesystem::exists(inside, ignored) ? "; did you mean " + inside + "?" : ""));
  }
  try {
    return read_whole_file(path, kMaxDeckBytes);
  } catch (const Error& problem) {
    const std::string text = problem.what();
    refuse(path, "", "no readable file: " + text.substr(text.starts_with(path + ": ") ? path.size() + 2 : 0));
  }
}

std::string text_of_named_deck(const std::string& path) {
  if (std::string copy = text_of_copy(); !copy.empty()) return copy;
  std::string text = text_of_deck(path);
  require_same_bytes(path, text);
  const std::string wanted = variable(kDeckHash);
  if (wanted.empty() || xxh3_128(text) == wanted) return text;
  refuse(path, "", "it changed while the command started; start the command again");
}

Deck read_named_deck(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_deck(text_of_named_deck(path), path, overrides);
}

void keep_named_deck(const std::string& path) {
  const std::string copy = variable(kDeckCopy);
  if (!copy.empty() && text_of_copy().empty()) write_whole_file(copy, text_of_named_deck(path));
}

}  // namespace kozero::io
