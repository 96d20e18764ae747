// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepared_folder.hpp: tokens.json, the description of a folder of prepared tokens, and the fingerprint in it.
#pragma once
#include <string>
#include <vector>

#include <kozero/io/prepare.hpp>
#include <kozero/io/text_source.hpp>

namespace kozero::io {

inline constexpr const char* kTokensDescription = "tokens.json";

/// 16 hexadecimal digits that change with the text files' paths, sizes and times, the tokenizer and val_fraction.
std::string fingerprint_of(const PrepareOrder& order, const std::vector<TextFile>& files);

/// A folder for prepared tokens that are made for one command and may be made again, the same for the same `name`:
/// XDG_CACHE_HOME/kozero/tokens-DIGITS; under ~/.cache or TMPDIR (/tmp) where that variable is not set. Throws
/// Error(write) where none of them can be written.
std::string token_cache(const std::string& name);

/// Writes folder/tokens.json; file names in it are relative to the folder.
void write_description(const std::string& folder, const PreparedTokens& tokens);

}  // namespace kozero::io
