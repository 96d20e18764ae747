// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_prompt.hpp: a conversation that a model continues, as the tokens of a chat template.
//   system? (question answer)* question  ->  ids up to the beginning of the next answer
// The ids are those of transformers' apply_chat_template with add_generation_prompt. With the template plain, whose
// texts are KoZeRO's own, they begin with the end-of-text token, as every document of training does.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kozero/core/views.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::data {

struct ChatStyle {
  std::string chat_template;               ///< a name of data.chat_template but none and auto
  std::optional<std::string> system = {};  ///< the text of the system message; without it the template's default
  bool thinks = true;                      ///< false: qwen3's answers begin with an empty <think> block
};

class ChatPrompt {
 public:
  /// `tokenizer` outlives the object. Throws Error(deck) if it lacks one of the template's special tokens, or if the
  /// template has no <think> blocks that could be empty.
  ChatPrompt(const ChatStyle& style, const io::Tokenizer& tokenizer);
  ~ChatPrompt();
  ChatPrompt(const ChatPrompt&) = delete;
  ChatPrompt& operator=(const ChatPrompt&) = delete;

  void ask(const std::string& question);
  void answer(const std::string& text);
  /// The ids to continue with an answer; the last message is a question.
  [[nodiscard]] std::vector<Token> tokens() const;
  /// Removes the oldest question and its answer. False if there is only one question, which stays.
  bool forget_oldest();
  /// Whether an answer ends with this token: the template's, or one that ends a text.
  [[nodiscard]] bool ends_answer(Token token) const;

 private:
  struct Messages;

  ChatStyle style_;
  const io::Tokenizer& tokenizer_;
  std::unique_ptr<Messages> messages_;
  Token end_;
};

}  // namespace kozero::data
