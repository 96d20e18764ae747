// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_toml.hpp: TOML text to a list of "this key was given this value there", for files and command lines alike.
// No key is looked up here. toml++ is included by these sources only, never by the deck's own header.
#pragma once
#include <toml++/toml.h>

#include <memory>
#include <string>
#include <vector>

namespace kozero::io {

/// A key that the user gave.
struct Given {
  std::string section;  ///< "" for a key outside any section
  std::string name;     ///< "" for a section without keys
  std::shared_ptr<toml::node> value;
  std::string origin;  ///< "a.toml:12" or "command line"

  [[nodiscard]] std::string key() const {
    return section.empty() || name.empty() ? section + name : section + "." + name;
  }
};

/// The keys of a deck's text, by line. A table inside a section is a Given whose value is a table.
/// Throws Error(deck) with the line where the text is no TOML.
std::vector<Given> given_in_text(const std::string& text, const std::string& source);

/// The key of "section.key=value": the value as TOML, or what is no TOML as a string.
Given given_in_override(const std::string& override_text);

/// A value for messages: 5, "adam", [1, 2], {a = 1}, a date.
std::string shown(const toml::node& value);

}  // namespace kozero::io
