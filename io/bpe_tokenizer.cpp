// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/io/bpe_tokenizer.hpp>
#include <kozero/io/nfc.hpp>
#include <kozero/io/tokenizer_json.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

/// Cuts text at added tokens, appends their ids, and hands on what is between them.
template <class Rest>
void between(const AddedTokens& added, std::string_view text, std::vector<Token>& tokens, const Rest& rest) {
  for (std::size_t start = 0; start < text.size();) {
    const auto match = added.find(text, start);
    if (match.begin > start) rest(text.substr(start, match.begin - start));
    if (match.id >= 0) tokens.push_back(match.id);
    start = match.end;
  }
}

}  // namespace

BpeTokenizer::BpeTokenizer(const std::string& path, std::string json_text)
    : BpeTokenizer(json_text, read_tokenizer_json(path, json_text)) {}

BpeTokenizer::BpeTokenizer(const std::vector<Merge>& merges)
    : BpeTokenizer("learnt tokenizer", tokenizer_json_of(merges)) {}

BpeTokenizer::BpeTokenizer(std::string json_text, TokenizerJson json)
    : json_text_(std::move(json_text)),
      added_(std::move(json.added)),
      added_normalized_(std::move(json.added_normalized)),
      pattern_(json.split),
      rules_(json.bytes, json.merges),
      bytes_of_(std::move(json.bytes_of)),
      nfc_(json.nfc),
      add_prefix_space_(json.add_prefix_space),
      end_of_text_(json.end_of_text),
      closing_(std::move(json.closing)) {
  for (const Token id : json.whole) whole_.emplace(bytes_of_[static_cast<std::size_t>(id)], id);
}

std::vector<Token> BpeTokenizer::encode(std::string_view text) const { return encode_text(text, add_prefix_space_); }

std::vector<Token> BpeTokenizer::encode_rest(std::string_view text) const { return encode_text(text, false); }

std::vector<Token> BpeTokenizer::encode_text(std::string_view text, bool add_prefix_space) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 3);
  between(added_, text, tokens, [&](std::string_view rest) {
    // A blank is missing only at the very front of text that goes on: behind an added token a new text begins.
    encode_unnormalized(rest, rest.data() == text.data() ? add_prefix_space : add_prefix_space_, tokens);
  });
  return tokens;
}

void BpeTokenizer::encode_unnormalized(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const {
  const std::string composed = nfc_ ? to_nfc(text) : std::string();
  const std::string_view normal = nfc_ ? std::string_view(composed) : text;
  between(added_normalized_, normal, tokens, [&](std::string_view rest) {
    encode_plain(rest, rest.data() == normal.data() ? add_prefix_space : add_prefix_space_, tokens);
  });
}

void BpeTokenizer::encode_plain(std::string_view text, bool add_prefix_space, std::vector<Token>& tokens) const {
  if (!add_prefix_space || text.starts_with(' ')) return encode_pieces(text, tokens);
  encode_pieces(" " + std::string(text), tokens);
}

void BpeTokenizer::encode_pieces(std::string_view text, std::vector<Token>& tokens) const {
  PieceSplitter splitter(pattern_, text);
  for (std::string_view piece; splitter.next(piece);) {
    if (cache_.find(piece, tokens)) continue;
    const std::size_t first = tokens.size();
    if (const auto whole = whole_.find(piece); whole != whole_.end()) {
      tokens.push_back(whole->second);
    } else {
      rules_.apply(piece, tokens);
    }
    cache_.keep(piece, std::span(tokens).subspan(first));
  }
}

std::string BpeTokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      throw Error(Failure::input, "tokenizer " + name() + ": id " + std::to_string(token) + " is outside [0, " +
                                      std::to_string(vocab_size()) + ")");
    }
    text += bytes_of_[static_cast<std::size_t>(token)];
  }
  return text;
}

bool BpeTokenizer::ends_text(Token token) const {
  return std::find(closing_.begin(), closing_.end(), token) != closing_.end();
}

void BpeTokenizer::save(const std::string& path) const { write_whole_file(path, json_text_); }

}  // namespace kozero::io
