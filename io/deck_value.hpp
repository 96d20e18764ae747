// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// deck_value.hpp: one key's value inside a Deck, whatever its type, and its text in TOML.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace kozero::io {

struct RopeScalingKeys;

/// Points at the member of a Deck that holds a key's value.
using DeckValue =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*, std::array<double, 2>*,
                 RopeScalingKeys*>;

/// The value as TOML that reads back to the same bits: 12, 1e-4, "gpt2", ["a", "b"].
std::string toml_text(DeckValue value);

std::string toml_number(double value);
std::string toml_string(const std::string& value);

/// a, b, c
std::string joined(const std::vector<std::string>& words);

/// [a, b, c]
std::string bracketed(const std::vector<std::string>& words);

}  // namespace kozero::io
