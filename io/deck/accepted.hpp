// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// accepted.hpp: the accepted values of the schema's rows in short: truth(), from_to(1, kMany), words({...}).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "io/deck/schema.hpp"

namespace kozero::io {

/// A truth value.
inline Accepted truth() { return {}; }
/// Any text other than "", described as `what`.
inline Accepted text(std::string what) { return {.what = std::move(what)}; }
/// A list of texts other than "", or an empty list.
inline Accepted list_or_none(std::string what) { return {.what = std::move(what), .or_none = true}; }
inline Accepted from(double low) { return {.low = low}; }
inline Accepted from_to(double low, double high) { return {.low = low, .high = high}; }
inline Accepted above(double low) { return {.low = low, .low_open = true}; }
inline Accepted fraction() { return {.low = 0, .high = 1, .high_open = true}; }
inline Accepted words(std::vector<std::string> all) { return {.words = std::move(all)}; }

inline constexpr double kMany = 1e12;  // steps, epochs: far beyond any run, far below overflow
inline constexpr double kExactTokens = 1e15;
inline constexpr double kWide = 1 << 24;        // widths and counts: their products must fit in 64 bits
inline constexpr double kMostValidation = 0.5;  // with more, the run would train on the smaller part
inline constexpr double kMostTogether = 64;     // units gathered ahead, blocks recomputed together

}  // namespace kozero::io
