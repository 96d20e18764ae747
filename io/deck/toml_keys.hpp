// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// toml_keys.hpp: the keys that a TOML text or an override gives, and how a given key is stored in a Deck.
// Throws Error(deck) with file and line, key and value.
// Included only by sources of this folder, since it includes toml++.
#pragma once
#include <toml++/toml.h>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/deck/deck.hpp"

namespace kozero::io {

/// A key that the user gave.
struct Given {
  std::string section;                ///< "" for a key outside any section
  std::string name;                   ///< "" for a section without keys
  std::shared_ptr<toml::node> value;  ///< inside its document, so that the nodes of a table have their lines
  std::string origin;                 ///< "a.toml:12" or "command line"

  [[nodiscard]] std::string key() const {
    return section.empty() || name.empty() ? section + name : section + "." + name;
  }
};

/// The keys of a deck's text, by line. A table inside a section is a Given whose value is a table.
/// Throws Error(deck) with the line if the text is not TOML.
std::vector<Given> given_in_text(const std::string& text, const std::string& source);

/// The key of "section.key=value". A value that is not TOML is taken as a string.
Given given_in_override(const std::string& override_text);

/// A value for messages: 5, "adam", [1, 2], {a = 1}, a date.
std::string shown(const toml::node& value);

constexpr int kDeepest = 32;

/// The first line at which more than kDeepest brackets are open or a dotted key has more than kDeepest parts; nullopt
/// if there is none. toml++ recurses, so a user's text is checked before it is parsed.
std::optional<std::size_t> line_too_deep(const std::string& text);

/// Stores the value in the member of its key's row and records its origin. Does nothing for an empty section. Throws
/// Error(deck) if there is no such section or key, or if the row does not accept the value.
void apply_given(const Given& given, Deck& deck);

}  // namespace kozero::io
