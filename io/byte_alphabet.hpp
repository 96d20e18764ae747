// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// byte_alphabet.hpp: GPT-2's way to write any bytes as visible text, used in tokenizer files.
//   visible Latin-1 bytes (! to ~, 0xA1-0xAC, 0xAE-0xFF) stand for themselves, the k-th other byte for U+0100 + k
// Radford et al. 2019, encoder.py, bytes_to_unicode.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace kozero::io {

/// The bytes, each as its visible character, in UTF-8.
std::string to_visible(std::string_view bytes);

/// The bytes that `visible` stands for, or nothing where it holds another character.
std::optional<std::string> from_visible(std::string_view visible);

}  // namespace kozero::io
