// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_prompt.cpp: the messages of a conversation under way, and their tokens.
#include <kozero/core/error.hpp>
#include <kozero/data/chat_prompt.hpp>
#include "src/data/chat_templates.hpp"
#include "src/data/chat_tokens.hpp"

namespace kozero::data {

struct ChatPrompt::Messages {
  std::vector<Message> all;
};

ChatPrompt::ChatPrompt(const ChatStyle& style, const io::Tokenizer& tokenizer)
    : style_(style), tokenizer_(tokenizer), messages_(std::make_unique<Messages>()) {
  require_special_tokens(style.chat_template, tokenizer);
  if (!style.thinks && !has_thinking(style.chat_template)) {
    throw Error(Failure::deck,
                "data.chat_template = \"" + style.chat_template + "\" has no <think> blocks: only qwen3 has them");
  }
  const std::string_view end = end_of_answer(style.chat_template);
  end_ = end.empty() ? tokenizer.end_of_text() : tokenizer.added_token(end);
  if (style.system) messages_->all.push_back({Role::system, *style.system});
}

ChatPrompt::~ChatPrompt() = default;

void ChatPrompt::ask(const std::string& question) { messages_->all.push_back({Role::user, question}); }

void ChatPrompt::answer(const std::string& text) { messages_->all.push_back({Role::assistant, text}); }

std::vector<Token> ChatPrompt::tokens() const {
  const ChatText chat = chat_prompt_text(style_.chat_template, messages_->all, style_.thinks);
  io::TextBlock block;
  block.text = chat.text;
  block.parts = chat.parts;
  std::vector<Token> tokens;
  if (end_of_answer(style_.chat_template).empty()) tokens.push_back(tokenizer_.end_of_text());
  std::vector<TokenRange> answers;
  encode_conversation(block, tokenizer_, *tokenizer_.encoder(), tokens, answers);
  return tokens;
}

bool ChatPrompt::forget_oldest() {
  const auto first = messages_->all.begin() + (style_.system ? 1 : 0);
  constexpr std::ptrdiff_t kTurn = 2;  // messages
  if (messages_->all.end() - first <= kTurn) return false;
  messages_->all.erase(first, first + kTurn);
  return true;
}

bool ChatPrompt::ends_answer(Token token) const { return token == end_ || tokenizer_.ends_text(token); }

}  // namespace kozero::data
