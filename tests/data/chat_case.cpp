// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_case.cpp: the tokenizer and the conversations of chat tests.
#include "chat_case.hpp"
#include <nlohmann/json.hpp>

#include "io/text/tokenizer_json.hpp"
#include "src/data/chat_templates.hpp"
#include "src/data/chat_tokens.hpp"
#include "src/data/records.hpp"

namespace kozero::tests {

using Json = nlohmann::ordered_json;

std::string chat_tokenizer(const std::vector<std::string>& added) {
  Json json = Json::parse(io::tokenizer_json_of({{'\n', '\n'}}, io::published_split("Qwen 2 and 3")));
  std::size_t id = 258;
  for (const auto& text : added) {
    json["added_tokens"].push_back({{"id", id++}, {"content", text}, {"special", text.starts_with("<|")}});
  }
  return json.dump();
}

std::vector<std::string> all_added_tokens() {
  return {"<|im_start|>",        "<|im_end|>",        "<think>",    "</think>",   "<|begin_of_text|>",
          "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<tool_call>"};
}

std::string marked(std::span<const Token> tokens, std::span<const data::TokenRange> answers,
                   const io::Tokenizer& tokenizer) {
  std::string text;
  for (std::int64_t i = 0; i <= std::ssize(tokens); ++i) {
    for (const auto& range : answers) {
      if (range.end == i) text += "]]";
    }
    for (const auto& range : answers) {
      if (range.first == i) text += "[[";
    }
    if (i < std::ssize(tokens)) text += tokenizer.decode(tokens.subspan(static_cast<std::size_t>(i), 1));
  }
  return text;
}

Chat::Chat() : tokenizer_("tokenizer.json", chat_tokenizer(all_added_tokens())) {}

std::string Chat::operator()(const std::string& chat_template, const std::string& record) const {
  const auto json = nlohmann::json::parse(record);
  const auto* shape = data::conversation_shape(json);
  if (shape == nullptr) return "no shape";
  data::ChatText chat = data::chat_text(chat_template, data::messages_of(json, *shape));
  io::TextBlock block;
  block.text = std::move(chat.text);
  block.parts = std::move(chat.parts);
  std::vector<Token> tokens;
  std::vector<data::TokenRange> answers;
  data::encode_conversation(block, tokenizer_, *tokenizer_.encoder(), tokens, answers);
  return marked(tokens, answers, tokenizer_);
}

std::string Chat::refusal(const std::string& record, const std::string& chat_template) {
  const auto json = nlohmann::json::parse(record);
  try {
    data::chat_text(chat_template, data::messages_of(json, *data::conversation_shape(json)));
  } catch (const data::BadRecord& bad) {
    return bad.what();
  }
  return "";
}

}  // namespace kozero::tests
