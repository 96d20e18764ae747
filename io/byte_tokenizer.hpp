// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// byte_tokenizer.hpp: a token is a byte, the vocabulary is 256.
// Byte 0, which text does not hold, doubles as end-of-text: documents are told apart without a 257th id, and a byte 0
// in the input still round-trips.
#pragma once
#include <kozero/io/tokenizer.hpp>

namespace kozero::io {

class ByteTokenizer : public Tokenizer {
 public:
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return 256; }
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] Token end_of_text() const override { return 0; }
  void save(const std::string& path) const override;
  /// What save writes.
  static std::string file_text() { return "{\"kozero_tokenizer\": \"bytes\"}\n"; }
  /// The same tokenizer as a Hugging Face tokenizer.json: byte-level BPE of the 256 byte characters without a merge.
  static std::string hugging_face_text();
};

}  // namespace kozero::io
