// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <kozero/core/error.hpp>
#include <kozero/io/sentencepiece_check.hpp>
#include <kozero/io/sentencepiece_tokenizer.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr const char* kBlank = "\xE2\x96\x81";  // U+2581, which stands for a blank in pieces

std::vector<Token> ids_of(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<Token> tokens;
  const auto status = processor.Encode(text, &tokens);
  require(status.ok(), "SentencePiece: " + status.ToString());
  return tokens;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& path, std::string model)
    : model_(std::move(model)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  check_sentencepiece(path, model_);
  try {
    const auto status = processor_->LoadFromSerializedProto(model_);
    if (!status.ok()) throw Error(Failure::input, path + ": not a SentencePiece model: " + status.ToString());
  } catch (const std::exception& problem) {
    if (dynamic_cast<const Error*>(&problem) != nullptr) throw;
    throw Error(Failure::input, path + ": not a SentencePiece model: " + problem.what());
  }
  const Token found = processor_->PieceToId(kBlank);
  blank_ = processor_->IsUnknown(found) ? -1 : found;
  const auto letter = processor_->EncodeAsPieces("a");
  blank_before_text_ = !letter.empty() && letter.front().rfind(kBlank, 0) == 0;
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<Token> SentencePieceTokenizer::encode(std::string_view text) const { return ids_of(*processor_, text); }

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

void SentencePieceTokenizer::save(const std::string& path) const { write_whole_file(path, model_); }

}  // namespace kozero::io
