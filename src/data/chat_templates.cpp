// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_templates.cpp: the templates, each as code.
#include "src/data/chat_templates.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <string_view>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

std::string_view name_of(Role role) {
  constexpr std::array<std::string_view, 3> kNames = {"system", "user", "assistant"};
  return kNames[static_cast<std::size_t>(role)];
}

std::string_view without_leading(std::string_view text, char unwanted) {
  return text.substr(std::min(text.find_first_not_of(unwanted), text.size()));
}

std::string_view without_trailing(std::string_view text, char unwanted) {
  return text.substr(0, text.find_last_not_of(unwanted) + 1);
}

/// <|im_start|>role\n ... <|im_end|>\n around the answer that `add_text` adds.
template <class AddText>
void add_chatml_turn(ChatText& chat, const Message& message, const AddText& add_text) {
  chat.add_special("<|im_start|>");
  chat.add(std::string(name_of(message.role)) + "\n");
  add_text();
  chat.add_special("<|im_end|>", message.is_trained);
  chat.add("\n");
}

void add_chatml_turn(ChatText& chat, const Message& message) {
  add_chatml_turn(chat, message, [&] { chat.add(message.text, message.is_trained); });
}

ChatText chatml(std::span<const Message> messages, const char* system) {
  ChatText chat;
  if (system != nullptr && messages.front().role != Role::system) add_chatml_turn(chat, {Role::system, system});
  for (const auto& message : messages) add_chatml_turn(chat, message);
  return chat;
}

ChatText plain_chatml(std::span<const Message> messages) { return chatml(messages, nullptr); }
ChatText qwen2(std::span<const Message> messages) { return chatml(messages, "You are a helpful assistant."); }
ChatText qwen2_5(std::span<const Message> messages) {
  return chatml(messages, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
}

/// The number of the last question; that of the last message if there is none.
std::size_t last_question(std::span<const Message> messages) {
  for (std::size_t i = messages.size(); i > 0; --i) {
    const Message& message = messages[i - 1];
    const bool is_tool = message.text.starts_with("<tool_response>") && message.text.ends_with("</tool_response>");
    if (message.role == Role::user && !is_tool) return i - 1;
  }
  return messages.size() - 1;
}

/// An answer without its reasoning, which is in a member of its own or before </think>.
struct Thought {
  std::string_view reasoning, answer;
};

Thought thought_of(const Message& message) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::string_view text = message.text;
  if (message.reasoning) return {*message.reasoning, text};
  const std::size_t close = text.find(kClose);
  if (close == std::string_view::npos) return {"", text};
  std::string_view before = without_trailing(text.substr(0, close), '\n');
  if (const std::size_t open = before.rfind(kOpen); open != std::string_view::npos) {
    before = before.substr(open + kOpen.size());
  }
  return {without_leading(before, '\n'), without_leading(text.substr(text.rfind(kClose) + kClose.size()), '\n')};
}

void add_thought(ChatText& chat, const Thought& thought, bool is_trained) {
  const std::string reasoning(without_trailing(without_leading(thought.reasoning, '\n'), '\n'));
  const bool is_block_trained = is_trained && !reasoning.empty();
  chat.add_special("<think>", is_block_trained);
  chat.add("\n" + reasoning + "\n", is_block_trained);
  chat.add_special("</think>", is_block_trained);
  chat.add("\n\n", is_block_trained);
  chat.add(std::string(without_leading(thought.answer, '\n')), is_trained);
}

ChatText qwen3(std::span<const Message> messages) {
  ChatText chat;
  const std::size_t question = last_question(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role != Role::assistant) {
      add_chatml_turn(chat, message);
      continue;
    }
    const Thought thought = thought_of(message);
    const bool has_block = i > question && (i + 1 == messages.size() || !thought.reasoning.empty());
    add_chatml_turn(chat, message, [&] {
      if (has_block) add_thought(chat, thought, message.is_trained);
      if (!has_block) chat.add(std::string(thought.answer), message.is_trained);
    });
  }
  return chat;
}

ChatText llama3(std::span<const Message> messages) {
  ChatText chat;
  chat.add_special("<|begin_of_text|>");
  for (const auto& message : messages) {
    chat.add_special("<|start_header_id|>");
    chat.add(std::string(name_of(message.role)));
    chat.add_special("<|end_header_id|>");
    chat.add("\n\n");
    chat.add(std::string(io::stripped(message.text)), message.is_trained);
    chat.add_special("<|eot_id|>", message.is_trained);
  }
  return chat;
}

ChatText plain(std::span<const Message> messages) {
  ChatText chat;
  for (const auto& message : messages) {
    if (message.role == Role::assistant) {
      chat.add("Assistant:\n");
      chat.add(message.text, message.is_trained);
      chat.add_special("", message.is_trained);
    } else {
      chat.add((message.role == Role::user ? "User:\n" : "System:\n") + message.text + "\n\n");
    }
  }
  return chat;
}

void open_chatml_answer(ChatText& chat) {
  chat.add_special("<|im_start|>");
  chat.add("assistant\n");
}
void open_llama3_answer(ChatText& chat) {
  chat.add_special("<|start_header_id|>");
  chat.add("assistant");
  chat.add_special("<|end_header_id|>");
  chat.add("\n\n");
}
void open_plain_answer(ChatText& chat) { chat.add("Assistant:\n"); }

constexpr std::array<std::string_view, 4> kTokensOfQwen3 = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"};
constexpr std::span kTokensOfChatml = std::span(kTokensOfQwen3).first(2);
constexpr std::array<std::string_view, 4> kTokensOfLlama3 = {"<|begin_of_text|>", "<|start_header_id|>",
                                                             "<|end_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 1> kTokensOfPlain = {""};

struct ChatTemplate {
  const char* name;
  ChatText (*write)(std::span<const Message>);
  void (*open_answer)(ChatText&);
  std::string_view end_of_answer;
  std::span<const std::string_view> special_tokens;
};
constexpr std::array<ChatTemplate, 6> kTemplates = {{
    {"chatml", plain_chatml, open_chatml_answer, "<|im_end|>", kTokensOfChatml},
    {"qwen2", qwen2, open_chatml_answer, "<|im_end|>", kTokensOfChatml},
    {"qwen2.5", qwen2_5, open_chatml_answer, "<|im_end|>", kTokensOfChatml},
    {"qwen3", qwen3, open_chatml_answer, "<|im_end|>", kTokensOfQwen3},
    {"llama3", llama3, open_llama3_answer, "<|eot_id|>", kTokensOfLlama3},
    {"plain", plain, open_plain_answer, "", kTokensOfPlain},
}};

const ChatTemplate& template_of(const std::string& name) {
  const auto* const found = std::ranges::find(kTemplates, name, &ChatTemplate::name);
  require(found != kTemplates.end(), "chat template " + name);
  return *found;
}

}  // namespace

void ChatText::add_special(const std::string& name, bool is_trained) {
  text += name;
  parts.push_back({text.size(), true, is_trained});
}

void ChatText::add(const std::string& ordinary, bool is_trained) {
  if (ordinary.empty()) return;
  text += ordinary;
  parts.push_back({text.size(), false, is_trained});
}

ChatText chat_text(const std::string& chat_template, std::span<const Message> messages) {
  const ChatTemplate& found = template_of(chat_template);
  const bool has_reasoning = std::ranges::any_of(messages, [](const auto& each) { return each.reasoning.has_value(); });
  if (has_reasoning && found.write != qwen3) {
    throw BadRecord("\"reasoning_content\" is for the template qwen3, not " + chat_template);
  }
  return found.write(messages);
}

ChatText chat_prompt_text(const std::string& chat_template, std::span<const Message> messages, bool thinks) {
  ChatText chat = chat_text(chat_template, messages);
  template_of(chat_template).open_answer(chat);
  if (has_thinking(chat_template) && !thinks) add_thought(chat, {}, false);
  return chat;
}

std::string_view end_of_answer(const std::string& chat_template) { return template_of(chat_template).end_of_answer; }

bool has_thinking(const std::string& chat_template) { return template_of(chat_template).write == qwen3; }

std::span<const std::string_view> special_tokens_of(const std::string& chat_template) {
  return template_of(chat_template).special_tokens;
}

}  // namespace kozero::data
