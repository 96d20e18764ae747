// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// utf8.hpp: which bytes are well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and
// any bytes as text that a terminal, a log and a JSON string can show.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace kozero::io {

/// Bytes of the well-formed character at the front of `text`, or 0 where there is none.
std::size_t utf8_character(std::string_view text);

/// Bytes at the front of `text` that begin a well-formed character and stop short of its end: all of `text` where
/// further bytes may complete it. 0 where a character is complete there, or the first byte begins none.
std::size_t utf8_beginning(std::string_view text);

/// Bytes of the longest well-formed prefix of `text`.
std::size_t utf8_prefix(std::string_view text);

/// Well-formed UTF-8 without control characters. Each ill-formed sequence becomes U+FFFD (Unicode 3.9: one for each
/// maximal subpart, as Python's errors="replace" has it); control characters other than tab and line feed are escaped
/// as \x1b or \u0085, so that no text can move the cursor.
std::string printable(std::string_view text);

}  // namespace kozero::io
