// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_chat_prompt.cpp: a conversation under way: the ids before an answer, what ends an answer, what is left out.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/data/chat_prompt.hpp>

#include <support/thrown.hpp>
#include "chat_case.hpp"

namespace kozero::data {
namespace {

/// The text of the prompt behind "Hi", "Hello" and "Bye".
std::string second_prompt(const ChatStyle& style) {
  const tests::Chat chat;
  ChatPrompt prompt(style, chat.tokenizer());
  prompt.ask("Hi");
  prompt.answer("<think>\nhm\n</think>\n\nHello");
  prompt.ask("Bye");
  return chat.tokenizer().decode(prompt.tokens());
}

std::string refusal(const ChatStyle& style, const io::Tokenizer& tokenizer) {
  return tests::thrown_by([&] { ChatPrompt(style, tokenizer); }).text;
}

const std::string kThought = "<think>\nhm\n</think>\n\n";

}  // namespace

TEST_CASE("a prompt ends where the answer begins, in each template") {
  const std::string turns = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + kThought +
                            "Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
  CHECK(second_prompt({"chatml"}) == turns);
  CHECK(second_prompt({"qwen2"}) == "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + turns);
  CHECK(second_prompt({"qwen2.5", "Be brief."}) == "<|im_start|>system\nBe brief.<|im_end|>\n" + turns);
  std::string without = turns;
  without.erase(without.find(kThought), kThought.size());
  CHECK(second_prompt({"qwen3"}) == without);
  CHECK(second_prompt({"qwen3", std::nullopt, false}) == without + "<think>\n\n</think>\n\n");
  CHECK(second_prompt({"llama3"}) ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n" +
            kThought +
            "Hello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_CASE("plain begins with the end-of-text token and ends answers with it, as in training") {
  const io::ByteTokenizer bytes;
  const std::string end(1, '\0');
  ChatPrompt prompt({"plain", "Be brief."}, bytes);
  prompt.ask("Hi");
  CHECK(bytes.decode(prompt.tokens()) == end + "System:\nBe brief.\n\nUser:\nHi\n\nAssistant:\n");
  prompt.answer("Hello");
  prompt.ask("Bye");
  CHECK(bytes.decode(prompt.tokens()).ends_with("Hello" + end + "User:\nBye\n\nAssistant:\n"));
  CHECK(prompt.ends_answer(0));
  CHECK_FALSE(prompt.ends_answer('\n'));
}

TEST_CASE("an answer ends with the template's token; the system message and the last question stay") {
  const tests::Chat chat;
  const auto id = [&](const char* name) { return chat.tokenizer().added_token(name); };
  ChatPrompt prompt({"chatml", "s"}, chat.tokenizer());
  CHECK(prompt.ends_answer(id("<|im_end|>")));
  CHECK_FALSE(prompt.ends_answer(id("<|im_start|>")));
  CHECK(ChatPrompt({"llama3"}, chat.tokenizer()).ends_answer(id("<|eot_id|>")));
  for (const std::string turn : {"1", "2", "3"}) {
    prompt.ask("q" + turn);
    if (turn != "3") prompt.answer("a" + turn);
  }
  CHECK(prompt.forget_oldest());
  CHECK(prompt.forget_oldest());
  CHECK_FALSE(prompt.forget_oldest());
  CHECK(chat.tokenizer().decode(prompt.tokens()) ==
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq3<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("special tokens that are spelled out in a question are ordinary text") {
  const tests::Chat chat;
  ChatPrompt prompt({"chatml"}, chat.tokenizer());
  prompt.ask("a<|im_end|>b");
  const auto tokens = prompt.tokens();
  CHECK(std::count(tokens.begin(), tokens.end(), chat.tokenizer().added_token("<|im_end|>")) == 1);
}

TEST_CASE("a tokenizer without the special tokens, and a template without thoughts, are refused") {
  const tests::Chat chat;
  CHECK(refusal({"chatml"}, io::ByteTokenizer())
            .starts_with("data.chat_template = \"chatml\": the tokenizer bytes has no token <|im_start|>"));
  CHECK(refusal({"chatml", std::nullopt, false}, chat.tokenizer()) ==
        "data.chat_template = \"chatml\" has no <think> blocks: only qwen3 has them");
}

}  // namespace kozero::data
