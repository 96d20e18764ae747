// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include "io/text/pretokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/tokenizer_json.hpp"

namespace kozero::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";

/// What the ids of bytes and merges stand for, as visible text.
std::vector<std::string> visible_of(const std::vector<Merge>& merges) {
  std::vector<std::string> visible;
  for (int byte = 0; byte < 256; ++byte) visible.push_back(to_visible(std::string(1, static_cast<char>(byte))));
  for (const auto& [left, right] : merges) {
    const auto known = static_cast<Token>(visible.size());
    require(left >= 0 && left < known && right >= 0 && right < known, "tokenizer_json_of: a merge of unknown ids");
    visible.push_back(visible[static_cast<std::size_t>(left)] + visible[static_cast<std::size_t>(right)]);
  }
  return visible;
}

}  // namespace

namespace {

/// `end_of_text` follows as an added token; "" for none.
std::string written(const std::vector<Merge>& merges, const std::string& end_of_text) {
  const auto visible = visible_of(merges);
  Json vocab = Json::object(), pairs = Json::array();
  auto& entries = vocab.get_ref<Json::object_t&>();  // known to differ: not searched, as operator[] would
  for (std::size_t id = 0; id < visible.size(); ++id) entries.Container::emplace_back(visible[id], id);
  if (!end_of_text.empty()) entries.Container::emplace_back(end_of_text, visible.size());
  for (const auto& [left, right] : merges) {
    pairs.push_back(visible[static_cast<std::size_t>(left)] + " " + visible[static_cast<std::size_t>(right)]);
  }
  const Json added = {{"id", visible.size()}, {"content", end_of_text}, {"single_word", false}, {"lstrip", false},
                      {"rstrip", false},      {"normalized", false},    {"special", true}};
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", end_of_text.empty() ? Json::array() : Json::array({added})},
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
                       {"merges", pairs}}}};
  return json.dump(1) + "\n";
}

}  // namespace

std::string tokenizer_json_of(const std::vector<Merge>& merges) { return written(merges, kEndOfText); }

std::string ByteTokenizer::hugging_face_text() { return written({}, ""); }

}  // namespace kozero::io
