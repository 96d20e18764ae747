// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>

#include <kozero/core/error.hpp>
#include <kozero/io/bpe_tokenizer.hpp>
#include <kozero/io/bpe_training.hpp>
#include <kozero/io/byte_tokenizer.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/sentencepiece_check.hpp>
#include <kozero/io/sentencepiece_tokenizer.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr int kMinVocab = 257;  // the bytes and end-of-text
constexpr int kMaxVocab = 1'000'000;
constexpr std::int64_t kMaxFileBytes = std::int64_t{128} << 20;

[[noreturn]] void refuse(const std::string& spec) {
  const std::array<std::string, 2> names = {"bytes", "bpe:4096"};
  const std::string near = nearest_name(spec, names.data(), names.data() + names.size());
  throw Error(Failure::deck, "data.tokenizer = \"" + spec + "\": accepted are \"bytes\", \"bpe:N\" with N from " +
                                 std::to_string(kMinVocab) + " to " + std::to_string(kMaxVocab) +
                                 ", or the path of a tokenizer.json or a SentencePiece model" +
                                 (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

/// A file of any kind. A SentencePiece model begins with the tag of its first piece, which is a line's end: what else
/// begins with white space or a brace is JSON.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::string bytes = read_whole_file(path, kMaxFileBytes);
  if (looks_like_sentencepiece(bytes)) return std::make_unique<SentencePieceTokenizer>(path, std::move(bytes));
  if (bytes == ByteTokenizer::file_text() || bytes == ByteTokenizer::hugging_face_text()) {
    return std::make_unique<ByteTokenizer>();
  }
  return std::make_unique<BpeTokenizer>(path, std::move(bytes));
}

}  // namespace

std::optional<int> bpe_size(const std::string& spec) {
  if (!spec.starts_with("bpe:")) return std::nullopt;
  int size = 0;
  const auto [end, problem] = std::from_chars(spec.data() + 4, spec.data() + spec.size(), size);
  if (problem != std::errc() || end != spec.data() + spec.size() || size < kMinVocab || size > kMaxVocab) refuse(spec);
  return size;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, const std::vector<TextFile>& corpus) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (const auto size = bpe_size(spec)) {
    if (corpus.empty()) {
      throw Error(Failure::deck, "data.tokenizer = \"" + spec +
                                     "\" is trained on text: give data.text, or the path of a tokenizer's file");
    }
    return std::make_unique<BpeTokenizer>(train_bpe(corpus, *size));
  }
  if (!is_there(spec)) refuse(spec);
  return load_tokenizer(spec);
}

}  // namespace kozero::io
