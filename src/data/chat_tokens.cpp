// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_tokens.cpp: encodes a conversation, text by text between its special tokens.
#include "src/data/chat_tokens.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <string_view>

#include <kozero/core/error.hpp>
#include "src/data/chat_templates.hpp"

namespace kozero::data {
namespace {

Token id_of(std::string_view name, const io::Tokenizer& tokenizer) {
  return name.empty() ? tokenizer.end_of_text() : tokenizer.added_token(name);
}

/// How many of the tokens are before the first byte behind `prefix`, with which their text begins.
std::size_t tokens_within(std::string_view prefix, std::span<const Token> tokens, const io::Tokenizer& tokenizer,
                          io::Encoder& encoder) {
  std::vector<Token> alone;
  encoder.encode_ordinary(prefix, alone);
  if (alone.size() <= tokens.size() && std::ranges::equal(alone, tokens.first(alone.size()))) return alone.size();
  // A token crosses the boundary. The prefix's bytes are counted as the normalizer leaves them.
  const std::size_t bytes = tokenizer.decode(alone).size();
  std::size_t count = 0;
  for (std::size_t end = 0; count < tokens.size(); ++count) {
    end += tokenizer.decode(tokens.subspan(count, 1)).size();
    if (end > bytes) break;
  }
  return count;
}

void add_range(std::vector<TokenRange>& ranges, std::int64_t first, std::int64_t end) {
  if (first == end) return;
  if (!ranges.empty() && ranges.back().end == first) {
    ranges.back().end = end;
  } else {
    ranges.push_back({first, end});
  }
}

}  // namespace

void require_special_tokens(const std::string& chat_template, const io::Tokenizer& tokenizer) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Failure::deck, fmt::format("data.chat_template = \"{}\": {}", chat_template, why));
  };
  if (!tokenizer.decodes_by_token()) refuse("SentencePiece models are not supported; byte-level BPE and bytes are");
  for (const std::string_view name : special_tokens_of(chat_template)) {
    if (id_of(name, tokenizer) >= 0) continue;
    refuse(
        fmt::format("the tokenizer {} has no token {}; use the tokenizer.json of a model with this template, or "
                    "data.chat_template=plain",
                    tokenizer.name(), name.empty() ? "that ends a text" : name));
  }
}

void encode_conversation(const io::TextBlock& conversation, const io::Tokenizer& tokenizer, io::Encoder& encoder,
                         std::vector<Token>& tokens, std::vector<TokenRange>& answers) {
  const std::string_view text = conversation.text;
  const auto& parts = conversation.parts;
  const auto size = [&] { return std::ssize(tokens); };
  for (std::size_t i = 0, begin = 0; i < parts.size();) {
    const std::int64_t first = size();
    if (parts[i].is_special) {
      const Token id = id_of(text.substr(begin, parts[i].end - begin), tokenizer);
      const bool is_there = i == 0 && !tokens.empty() && tokens.back() == id;
      if (!is_there) tokens.push_back(id);
      if (parts[i].is_trained) add_range(answers, first, size());
      begin = parts[i++].end;
      continue;
    }
    // Ordinary parts up to the next special token are one text for the tokenizer: first what is not trained.
    std::size_t prefix_end = begin, end = begin;
    bool is_trained = false;
    for (; i < parts.size() && !parts[i].is_special; ++i) {
      require(parts[i].is_trained || !is_trained, "encode_conversation: text behind an answer without a token between");
      is_trained = parts[i].is_trained;
      end = parts[i].end;
      if (!is_trained) prefix_end = end;
    }
    encoder.encode_ordinary(text.substr(begin, end - begin), tokens);
    if (is_trained) {
      const std::string_view prefix = text.substr(begin, prefix_end - begin);
      const auto here = std::span<const Token>(tokens).subspan(static_cast<std::size_t>(first));
      add_range(answers, first + std::ssize(here.first(tokens_within(prefix, here, tokenizer, encoder))), size());
    }
    begin = end;
  }
}

void require_answers(std::int64_t trained, std::int64_t tokens, const std::string& place) {
  if (tokens == 0 || (trained > 0 && trained < tokens)) return;
  throw Error(
      Failure::input,
      fmt::format("{}: {} of {} tokens are trained on, {} %: {}", place, trained, tokens, trained == 0 ? 0 : 100,
                  trained == 0 ? "no answer has a weight other than 0"
                               : "questions would be learned too; the .answers files are not of conversations"));
}

}  // namespace kozero::data
