// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_case.hpp: for tests: a tokenizer with the special tokens of every chat template, and conversations as their
// tokens' text, with each answer in double brackets.
#pragma once
#include <span>
#include <string>
#include <vector>

#include <kozero/data/token_shard.hpp>
#include <support/scratch_folder.hpp>
#include "io/text/bpe_tokenizer.hpp"

namespace kozero::tests {

/// A tokenizer.json of the bytes and the merge "\n\n", with these added tokens. Those that begin with "<|" are special.
std::string chat_tokenizer(const std::vector<std::string>& added);
/// The added tokens of every template, and <tool_call>.
std::vector<std::string> all_added_tokens();

/// The tokens' text, each answer in double brackets.
std::string marked(std::span<const Token> tokens, std::span<const data::TokenRange> answers,
                   const io::Tokenizer& tokenizer);

class Chat {
 public:
  Chat();
  /// The conversation of a JSON record as the template writes it, marked.
  std::string operator()(const std::string& chat_template, const std::string& record) const;
  [[nodiscard]] const io::BpeTokenizer& tokenizer() const { return tokenizer_; }

  /// Why the record is no conversation; "" if it is one.
  static std::string refusal(const std::string& record, const std::string& chat_template = "chatml");

 private:
  io::BpeTokenizer tokenizer_;
};

}  // namespace kozero::tests
