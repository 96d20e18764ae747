// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// readable.hpp: numbers as people read them, in few characters.
#pragma once
#include <cstdint>
#include <string>

namespace kozero::io {

/// "512 B", "1.5 KiB", "12.3 GiB".
std::string readable_bytes(std::int64_t bytes);

/// "950", "12.3 k", "1.24 M": three digits or more.
std::string readable_count(double count);

/// "4 s", "1 min 05 s", "2 h 05 min"; "?" for what is not a time.
std::string readable_seconds(double seconds);

}  // namespace kozero::io
