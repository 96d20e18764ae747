// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include <kozero/io/byte_tokenizer.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

std::vector<Token> ByteTokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const Token token : tokens) {
    if (token < 0 || token > 255) {
      throw Error(Failure::input, "tokenizer bytes: id " + std::to_string(token) + " is outside [0, 256)");
    }
    text.push_back(static_cast<char>(token));
  }
  return text;
}

void ByteTokenizer::save(const std::string& path) const {
  write_whole_file(path, file_text());
}

}  // namespace kozero::io
