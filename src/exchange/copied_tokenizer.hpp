// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// copied_tokenizer.hpp: a tokenizer's file from one folder to another, byte for byte.
#pragma once
#include <string>

#include <kozero/io/whole_file.hpp>

namespace kozero::exchange {

inline constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

/// Throws Error(input or write).
inline void copy_tokenizer(const std::string& from, const std::string& to) {
  io::write_whole_file(to, io::read_whole_file(from, kMaxTokenizerBytes));
}

}  // namespace kozero::exchange
