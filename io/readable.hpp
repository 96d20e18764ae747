// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// readable.hpp: numbers as people read them, in few characters; texts from elsewhere on one line.
#pragma once
#include <cstdint>
#include <string>

namespace kozero::io {

/// "512 B", "1.5 KiB", "12.3 GiB".
std::string readable_bytes(std::int64_t bytes);

/// "950", "12.3 k", "1.24 M": three digits or more.
std::string readable_count(double count);

/// "0", "950", "40,960": all digits, in groups of three.
std::string grouped_digits(std::int64_t count);

/// "4 s", "1 min 05 s", "2 h 05 min"; "?" for what is not a time.
std::string readable_seconds(double seconds);

/// The text with blanks for line ends and other control characters.
std::string on_one_line(std::string text);

}  // namespace kozero::io
