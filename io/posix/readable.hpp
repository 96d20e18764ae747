// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// readable.hpp: text for people: valid UTF-8, control characters made visible, readable numbers, short JSON excerpts.
// Log lines, error messages and tables use these functions. Well-formed UTF-8 is that of RFC 3629: no overlong forms,
// no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kozero::io {

/// Bytes of the well-formed character at the front of `text`, or 0 if there is none.
std::size_t utf8_character(std::string_view text);

/// Bytes of an incomplete well-formed character at the front of `text`: all of `text` if further bytes may complete it;
/// 0 if a character is complete, or if the first byte begins none.
std::size_t utf8_beginning(std::string_view text);

/// Bytes of the longest well-formed prefix of `text`.
std::size_t utf8_prefix(std::string_view text);

/// Well-formed UTF-8 without control characters. Each ill-formed sequence becomes U+FFFD (Unicode 3.9: one for each
/// maximal subpart, as Python's errors="replace" has it); control characters other than tab and line feed are escaped
/// as \x1b or \u0085, so that no text can move the cursor.
std::string printable(std::string_view text);

/// The same on one line: line feeds are escaped too.
std::string printable_line(std::string_view text);

/// "512 B", "1.5 KiB", "12.3 GiB".
std::string readable_bytes(std::int64_t bytes);

/// "950", "12.3 k", "1.24 M": three digits or more.
std::string readable_count(double count);

/// "0", "950", "40,960": all digits, in groups of three.
std::string grouped_digits(std::int64_t count);

/// "4 s", "1 min 05 s", "2 h 05 min"; "?" if not finite or negative.
std::string readable_seconds(double seconds);

/// Bytes of "512MiB", "1.5 GiB", "48GB"; nullopt for other text. A unit is required: B, KiB, MiB, GiB,
/// TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000).
std::optional<double> bytes_of_text(std::string_view text);

/// Seconds of "90s", "10min", "2h", "1.5 d"; nullopt for other text. A unit is required.
std::optional<double> seconds_of_text(std::string_view text);

/// The text with blanks for line ends and other control characters.
std::string on_one_line(std::string text);

/// The text without white space at both ends, as Python's str.strip() has it, and at its end alone (str.rstrip()).
std::string_view stripped(std::string_view text);
std::string_view stripped_at_end(std::string_view text);

/// A JSON value for a message: on one line, in ASCII, cut to at most 83 characters.
std::string json_excerpt(const nlohmann::json& value);

}  // namespace kozero::io
