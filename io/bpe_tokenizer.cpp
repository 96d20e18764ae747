// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/bpe_tokenizer.hpp>
#include <kozero/io/byte_alphabet.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::size_t kMaxTokenBytes = 1 << 16;

std::vector<std::string> bytes_of_ids(const std::vector<Merge>& merges) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) {
    const auto known = static_cast<Token>(bytes.size());
    require(left >= 0 && left < known && right >= 0 && right < known, "BpeTokenizer: a merge of unknown ids");
    bytes.push_back(bytes[static_cast<std::size_t>(left)] + bytes[static_cast<std::size_t>(right)]);
  }
  bytes.emplace_back(kEndOfText);
  return bytes;
}

[[noreturn]] void malformed(const std::string& path, const std::string& reason) {
  throw Error(Failure::input, path + ": not a tokenizer of KoZeRO: " + reason);
}

/// The merges of a parsed file, in order; every name is resolved by what was made before it.
std::vector<Merge> read_merges(const std::string& path, const nlohmann::json& json) {
  const auto pointer = nlohmann::json::json_pointer("/model/merges");
  if (!json.is_object() || !json.contains(pointer) || !json[pointer].is_array()) malformed(path, "no model.merges");
  std::unordered_map<std::string, Token> id_of;
  for (int byte = 0; byte < 256; ++byte) id_of.emplace(std::string(1, static_cast<char>(byte)), byte);
  const auto resolve = [&](std::string_view visible, const std::string& merge) {
    const auto bytes = from_visible(visible);
    const auto found = bytes ? id_of.find(*bytes) : id_of.end();
    if (found == id_of.end()) malformed(path, "merge \"" + merge + "\" uses a token that no earlier merge made");
    return found->second;
  };
  std::vector<Merge> merges;
  for (const auto& entry : json[pointer]) {
    const std::string merge = entry.is_string() ? entry.get<std::string>() : "";
    const std::size_t blank = merge.find(' ');
    if (blank == std::string::npos) malformed(path, "merge " + entry.dump() + " is not \"left right\"");
    const auto left = std::string_view(merge).substr(0, blank);
    const auto right = std::string_view(merge).substr(blank + 1);
    merges.emplace_back(resolve(left, merge), resolve(right, merge));
    const std::string made = *from_visible(left) + *from_visible(right);
    if (made.size() > kMaxTokenBytes) malformed(path, "a token of " + std::to_string(made.size()) + " bytes");
    if (!id_of.emplace(made, static_cast<Token>(255 + merges.size())).second) {
      malformed(path, "merge \"" + merge + "\" makes a token twice");
    }
  }
  return merges;
}

/// The vocabulary must give every id the text that the merges give it.
void check_vocab(const std::string& path, const nlohmann::json& json, const std::vector<std::string>& bytes_of) {
  const auto vocab = json["model"].value("vocab", nlohmann::json::object());
  if (vocab.size() != bytes_of.size()) {
    malformed(path, "model.vocab has " + std::to_string(vocab.size()) + " entries, the merges make " +
                        std::to_string(bytes_of.size()));
  }
  for (std::size_t id = 0; id < bytes_of.size(); ++id) {
    const std::string key = id + 1 == bytes_of.size() ? kEndOfText : to_visible(bytes_of[id]);
    if (!vocab.contains(key) || vocab[key] != id) malformed(path, "model.vocab does not give " + key + " its id");
  }
}

}  // namespace

BpeTokenizer::BpeTokenizer(std::vector<Merge> merges)
    : pattern_(kGpt2Split), rules_(std::move(merges)), bytes_of_(bytes_of_ids(rules_.merges())) {}

BpeTokenizer BpeTokenizer::load(const std::string& path, const nlohmann::json& json) {
  BpeTokenizer tokenizer(read_merges(path, json));
  check_vocab(path, json, tokenizer.bytes_of_);
  return tokenizer;
}

std::vector<Token> BpeTokenizer::encode(std::string_view text) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 3);
  PieceSplitter splitter(pattern_, text);
  for (std::string_view piece; splitter.next(piece);) {
    if (cache_.find(piece, tokens)) continue;
    const std::size_t first = tokens.size();
    rules_.apply(piece, tokens);
    cache_.keep(piece, std::span(tokens).subspan(first));
  }
  return tokens;
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

void BpeTokenizer::save(const std::string& path) const {
  nlohmann::ordered_json vocab, merges = nlohmann::ordered_json::array();
  for (std::size_t id = 0; id + 1 < bytes_of_.size(); ++id) vocab[to_visible(bytes_of_[id])] = id;
  vocab[kEndOfText] = end_of_text();
  for (const auto& [left, right] : rules_.merges()) {
    merges.push_back(to_visible(bytes_of_[static_cast<std::size_t>(left)]) + " " +
                     to_visible(bytes_of_[static_cast<std::size_t>(right)]));
  }
  const nlohmann::ordered_json added = {{"id", end_of_text()}, {"content", kEndOfText}, {"single_word", false},
                                        {"lstrip", false},     {"rstrip", false},       {"normalized", false},
                                        {"special", true}};
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::ordered_json json = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", nlohmann::ordered_json::array({added})},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", byte_level},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level},
                                       {"model",
                                        {{"type", "BPE"},
                                         {"dropout", nullptr},
                                         {"unk_token", nullptr},
                                         {"continuing_subword_prefix", nullptr},
                                         {"end_of_word_suffix", nullptr},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"vocab", vocab},
                                         {"merges", merges}}}};
  write_whole_file(path, json.dump(1) + "\n");
}

}  // namespace kozero::io
