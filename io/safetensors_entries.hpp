// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// safetensors_entries.hpp: the JSON of a safetensors header as entries; the grammar alone, no arithmetic.
// Read event by event: what the format does not have is refused where it appears, so nothing is ever built that a
// hostile header chose (depth, huge numbers, a million dims), and a key given twice is seen.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <kozero/io/safetensors_header.hpp>

namespace kozero::io {

/// In the order of the text; names may repeat and numbers may be anything from 0 to 2^63 - 1. Throws Error(input).
std::vector<TensorEntry> read_header_entries(const std::string& path, std::string_view header);

}  // namespace kozero::io
