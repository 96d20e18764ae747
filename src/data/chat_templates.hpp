// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_templates.hpp: messages -> a text with special tokens, as published chat templates write them.
//   chatml    <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n
//                                                                     ==========
//   llama3    <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>...
//   plain     User:\nHi\n\nAssistant:\nHello<end-of-text>
// Underlined is what is trained: the text of an answer and the token that ends it. qwen2 and qwen2.5 are chatml with a
// system message where a conversation has none. qwen3 is chatml with <think> blocks: earlier answers lose theirs, the
// last answer has one. An empty one is not trained, since generation without thinking puts it into the prompt.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/document_reader.hpp"
#include "src/data/conversations.hpp"

namespace kozero::data {

/// A conversation as a template writes it.
struct ChatText {
  std::string text;
  std::vector<io::TextPart> parts;

  void add_special(const std::string& name, bool is_trained = false);
  void add(const std::string& ordinary, bool is_trained = false);
};

/// `chat_template`: one of those of data.chat_template but none and auto. Throws BadRecord, without the row, if the
/// template would lose the answers' reasoning.
ChatText chat_text(const std::string& chat_template, std::span<const Message> messages);

/// The messages and the beginning of the answer that follows them, as transformers writes them with
/// add_generation_prompt. Without `thinks`, the answer of qwen3 begins with an empty <think> block (enable_thinking).
ChatText chat_prompt_text(const std::string& chat_template, std::span<const Message> messages, bool thinks);

/// The special token that ends an answer; without text it is the end-of-text token.
std::string_view end_of_answer(const std::string& chat_template);

/// Whether answers of the template may begin with a <think> block.
bool has_thinking(const std::string& chat_template);

/// The special tokens that the template writes; one without text is the end-of-text token.
std::span<const std::string_view> special_tokens_of(const std::string& chat_template);

}  // namespace kozero::data
