// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// not_text.hpp: recognizes files that are not plain text by their first bytes, and says how to make text of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kozero::data {

/// Why a file is not text: in a list of skipped files, and as the refusal of a file that was given; empty for text.
struct Objection {
  std::string reason;
  std::string refusal;
};

/// To files of a format from which no documents are read; `remedy` says how to make such files of it.
Objection not_text(const std::string& format, const std::string& remedy);

/// Whether the beginning of a file is UTF-8 without NUL, which begins like text even if a magic number of letters is in
/// front. `is_whole` says whether it is the whole file.
bool is_text(std::string_view head, bool is_whole);

/// `head` is the beginning of a file; `is_whole` says whether it is the whole file.
/// A PDF may begin like text; the other formats do not.
Objection objection_to(std::string_view head, bool is_whole);

/// The objection to text that is not UTF-8 from `good` on; `offset` is the position of its first byte in the file.
Objection not_utf8(std::string_view bytes, std::size_t good, std::int64_t offset);

}  // namespace kozero::data
