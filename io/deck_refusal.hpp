// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_refusal.hpp: how a deck is refused, in one line:   WHERE: KEY = VALUE: WHY
// WHERE is file and line, or "command line", or the file alone for a key that the user did not give.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/io/deck.hpp>

namespace kozero::io {

/// Throws Error(deck) with a text that no line break or overlong value can leave one line.
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& why);

/// The same about a key of a read deck: its origin, its value.
[[noreturn]] void refuse_value(const Deck& deck, const std::string& key, const std::string& why);

/// The same about a key that is not there.
[[noreturn]] void refuse_missing(const Deck& deck, const std::string& key, const std::string& why);

/// Where a key's value came from, or the deck's file.
std::string origin_of(const Deck& deck, const std::string& key);

/// "; did you mean NAME?", or "" where no name is near.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& names);

}  // namespace kozero::io
