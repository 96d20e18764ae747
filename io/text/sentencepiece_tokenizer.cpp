// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sentencepiece_processor.h>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/text/sentencepiece_check.hpp"
#include "io/text/sentencepiece_tokenizer.hpp"

namespace kozero::io {

namespace {

constexpr const char* kBlank = "\xE2\x96\x81";  // U+2581, which stands for a blank in pieces

std::vector<Token> ids_of(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<Token> tokens;
  const auto status = processor.Encode(text, &tokens);
  require(status.ok(), "SentencePiece: " + status.ToString());
  return tokens;
}

/// Where the text's first word, with the blanks before it, ends.
std::size_t first_word(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? text.size() : std::min(text.find(' ', begin), text.size());
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& path, std::string model)
    : model_(std::move(model)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const bool words_are_apart = check_sentencepiece(path, model_);
  try {
    const auto status = processor_->LoadFromSerializedProto(model_);
    if (!status.ok())
      throw Error(Failure::input, path + ": not a SentencePiece model: " + on_one_line(status.ToString()));
  } catch (const std::exception& problem) {
    if (dynamic_cast<const Error*>(&problem) != nullptr) throw;
    throw Error(Failure::input, path + ": not a SentencePiece model: " + on_one_line(problem.what()));
  }
  const Token found = processor_->PieceToId(kBlank);
  blank_ = processor_->IsUnknown(found) ? -1 : found;
  const auto letter = processor_->EncodeAsPieces("a");
  blank_before_text_ = !letter.empty() && letter.front().rfind(kBlank, 0) == 0;
  word_by_word_ = words_are_apart && blank_before_text_ && blank_ >= 0;
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<Token> SentencePieceTokenizer::encode(std::string_view text) const {
  // A U+2581 of the text's own is as good as a blank, but no word is cut there.
  if (!word_by_word_ || text.find(kBlank) != std::string_view::npos) return ids_of(*processor_, text);
  std::size_t end = first_word(text);
  std::vector<Token> tokens = ids_of(*processor_, text.substr(0, end));
  while (end < text.size()) {
    const std::string_view word = text.substr(end, first_word(text.substr(end)));
    encode_word(word, tokens);
    end += word.size();
  }
  return tokens;
}

/// The word begins with a blank, which the library puts in its place before any text but the empty one.
void SentencePieceTokenizer::encode_word(std::string_view word, std::vector<Token>& tokens) const {
  if (cache_.find(word, tokens)) return;
  std::vector<Token> ids = ids_of(*processor_, word.substr(1));
  if (ids.empty()) ids.push_back(blank_);
  cache_.keep(word, ids);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

std::vector<Token> SentencePieceTokenizer::encode_rest(std::string_view text) const {
  if (!blank_before_text_) return encode(text);
  if (text.starts_with(' ')) return encode(text.substr(1));  // the model puts one in its place
  auto tokens = encode(text);
  if (!tokens.empty() && tokens.front() == blank_) tokens.erase(tokens.begin());
  return tokens;
}

std::string SentencePieceTokenizer::decode(std::span<const Token> tokens) const {
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      throw Error(Failure::input, "tokenizer " + name() + ": id " + std::to_string(token) + " is outside [0, " +
                                      std::to_string(vocab_size()) + ")");
    }
  }
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
  require(status.ok(), "SentencePiece: " + status.ToString());
  return text;
}

int SentencePieceTokenizer::vocab_size() const { return processor_->GetPieceSize(); }

Token SentencePieceTokenizer::end_of_text() const {
  return processor_->bos_id() >= 0 ? processor_->bos_id() : processor_->eos_id();
}

bool SentencePieceTokenizer::ends_text(Token token) const {
  return token >= 0 && (token == end_of_text() || token == processor_->eos_id());
}

void SentencePieceTokenizer::save(const std::string& path) const { write_whole_file(path, model_); }

}  // namespace kozero::io
