// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_tokens.hpp: the tokens of a conversation, and which of them are trained.
//   parts of a text (chat_templates.hpp) -> ids; ordinary text between two special tokens is encoded as one text
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/data/token_shard.hpp>
#include "io/text/document_reader.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::data {

/// Throws Error(deck) if the tokenizer lacks one of the template's special tokens.
void require_special_tokens(const std::string& chat_template, const io::Tokenizer& tokenizer);

/// Appends the conversation's tokens to `tokens`, and to `answers` the ranges of trained ones among all of `tokens`.
/// A token that has bytes of an answer and of the text before it counts to the answer, as in transformers. If `tokens`
/// ends with the template's first special token, this is not repeated.
void encode_conversation(const io::TextBlock& conversation, const io::Tokenizer& tokenizer, io::Encoder& encoder,
                         std::vector<Token>& tokens, std::vector<TokenRange>& answers);

/// Refuses tokens of conversations that would teach nothing or everything; `place` is their folder. Throws
/// Error(input).
void require_answers(std::int64_t trained, std::int64_t tokens, const std::string& place);

}  // namespace kozero::data
