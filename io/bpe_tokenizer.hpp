// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_tokenizer.hpp: byte-level byte-pair encoding.
//   text -> pieces (split pattern) -> bytes -> merges        ids: 0..255 bytes, then the merges, last <|endoftext|>
// Saved as a Hugging Face tokenizer.json (model BPE with "vocab" and "merges", pre-tokenizer and decoder ByteLevel), so
// that peers read it too; this class reads what it wrote, and checks all of it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <kozero/io/merge_rules.hpp>
#include <kozero/io/piece_cache.hpp>
#include <kozero/io/split_pattern.hpp>
#include <kozero/io/tokenizer.hpp>

namespace kozero::io {

class BpeTokenizer : public Tokenizer {
 public:
  /// With GPT-2's split pattern.
  explicit BpeTokenizer(std::vector<Merge> merges);
  /// From a parsed tokenizer.json. Throws Error(input) naming `path` and what is wrong.
  static BpeTokenizer load(const std::string& path, const nlohmann::json& json);

  [[nodiscard]] std::vector<Token> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override;
  [[nodiscard]] int vocab_size() const override { return static_cast<int>(bytes_of_.size()); }
  [[nodiscard]] std::string name() const override { return "bpe:" + std::to_string(vocab_size()); }
  [[nodiscard]] Token end_of_text() const override { return vocab_size() - 1; }
  void save(const std::string& path) const override;

 private:
  SplitPattern pattern_;
  MergeRules rules_;
  std::vector<std::string> bytes_of_;  ///< what each id decodes to
  mutable PieceCache cache_;
};

}  // namespace kozero::io
