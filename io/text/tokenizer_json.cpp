// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenizer_json.cpp: reads and checks a tokenizer.json: first its "model" part, then the other parts.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "io/text/pretokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/tokenizer_json.hpp"

namespace kozero::io {

namespace {

constexpr std::int64_t kMaxIds = MergeRules::kMaxIds;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(Failure::input, path + ": " + reason);
}

/// The id, or -1 if the value is not an id.
std::int64_t id_from(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxIds ? value.get<std::int64_t>() : -1;
}

/// The two parts of a merge; empty if it has another form.
std::pair<std::string, std::string> parts_of(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) return {};
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return {};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

std::vector<MergeRule> read_merges(const std::string& path, const nlohmann::json& merges, const BpeVocabulary& known) {
  std::vector<MergeRule> rules;
  if (merges.size() >= MergeRules::kMaxRules) refuse(path, "model.merges has 2^24 merges or more");
  rules.reserve(merges.size());
  std::set<std::pair<Token, Token>> seen;
  for (const auto& merge : merges) {
    const auto [left, right] = parts_of(merge);
    if (left.empty() || right.empty()) refuse(path, "merge " + json_excerpt(merge) + " is not \"left right\"");
    const auto id_of = [&](const std::string& token) {
      const auto found = known.id_of.find(token);
      if (found == known.id_of.end()) {
        refuse(path, "merge " + json_excerpt(merge) + ": " + json_excerpt(token) + " is not in model.vocab");
      }
      return found->second;
    };
    const MergeRule rule{id_of(left), id_of(right), id_of(left + right)};
    if (!seen.emplace(rule.left, rule.right).second) refuse(path, "merge " + json_excerpt(merge) + " stands twice");
    rules.push_back(rule);
  }
  return rules;
}

using Json = nlohmann::json;

/// Reads one file; every error names it.
class Reader {
 public:
  Reader(std::string path, const Json& json) : path_(std::move(path)), json_(json) {}

  TokenizerJson read() {
    check_model();
    auto vocabulary = read_bpe_vocabulary(path_, json_["model"]);
    if (flag(json_["model"], "ignore_merges", false)) {
      for (const auto& [visible, id] : vocabulary.id_of) {
        if (from_visible(visible)) read_.whole.push_back(id);
      }
    }
    read_normalizer();
    read_pre_tokenizer();
    check_decoder();
    read_added_tokens(vocabulary);
    read_.end_of_text = end_of_text(vocabulary);
    read_.closing = closing_tokens(vocabulary);
    for (const auto& visible : vocabulary.visible) read_.bytes_of.push_back(from_visible(visible).value_or(visible));
    read_.bytes = vocabulary.bytes;
    read_.merges = std::move(vocabulary.merges);
    return std::move(read_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const { throw Error(Failure::input, path_ + ": " + reason); }

  /// The member, or null if it is absent.
  static const Json& member(const Json& object, const char* name) {
    static const Json kNull;
    const auto found = object.is_object() ? object.find(name) : object.end();
    return !object.is_object() || found == object.end() ? kNull : *found;
  }

  bool flag(const Json& object, const char* name, bool otherwise) const {
    const Json& value = member(object, name);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(std::string(name) + " = " + json_excerpt(value) + " is neither true nor false");
    return value.get<bool>();
  }

  /// The steps of a part: those in the member `list` of a Sequence, else the part itself; none for null.
  std::vector<Json> steps(const char* part, const char* list) const {
    const Json& value = member(json_, part);
    if (value.is_null()) return {};
    if (!value.is_object()) refuse(std::string(part) + " = " + json_excerpt(value) + " is not supported");
    if (member(value, "type") != "Sequence") return {value};
    const Json& all = member(value, list);
    if (!all.is_array()) refuse(std::string(part) + ": a Sequence without " + list);
    return {all.begin(), all.end()};
  }

  void check_model() const {
    const Json& model = member(json_, "model");
    if (!model.is_object()) refuse("no model");
    const Json& type = member(model, "type");
    if (type != "BPE" && !type.is_null()) refuse("model.type = " + json_excerpt(type) + " is not supported; BPE is");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = member(model, affix);
      if (!value.is_null() && value != "")
        refuse(std::string("model.") + affix + " = " + json_excerpt(value) + " is not supported");
    }
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) refuse("model.dropout = " + json_excerpt(dropout) + " is not supported");
    for (const char* whole_text : {"truncation", "padding"}) {
      const Json& value = member(json_, whole_text);
      if (!value.is_null()) refuse(std::string(whole_text) + " = " + json_excerpt(value) + " is not supported");
    }
  }

  void read_normalizer() {
    for (const Json& step : steps("normalizer", "normalizers")) {
      if (member(step, "type") != "NFC") refuse("normalizer " + json_excerpt(step) + " is not supported; NFC is");
      read_.nfc = true;
    }
  }

  void read_pre_tokenizer() {
    const auto all = steps("pre_tokenizer", "pretokenizers");
    if (all.empty() || all.size() > 2 || member(all.back(), "type") != "ByteLevel") {
      refuse("pre_tokenizer " + json_excerpt(member(json_, "pre_tokenizer")) +
             " is not supported; ByteLevel is, alone or after one Split");
    }
    const bool own_split = flag(all.back(), "use_regex", true);
    read_.add_prefix_space = flag(all.back(), "add_prefix_space", true);
    if (all.size() == 1) {
      if (!own_split) refuse("pre_tokenizer: ByteLevel with use_regex = false and no Split before it is not supported");
      read_.split = kGpt2Split;
      return;
    }
    if (own_split || read_.add_prefix_space) {
      refuse("pre_tokenizer: ByteLevel with use_regex or add_prefix_space after another step is not supported");
    }
    read_.split = split_of(all.front());
  }

  std::string split_of(const Json& step) const {
    if (member(step, "type") != "Split") refuse("pre_tokenizer " + json_excerpt(step) + " is not supported; Split is");
    if (member(step, "behavior") != "Isolated" || flag(step, "invert", false)) {
      refuse("pre_tokenizer: a Split with behavior " + json_excerpt(member(step, "behavior")) + ", invert " +
             json_excerpt(member(step, "invert")) + " is not supported; Isolated and false are");
    }
    const Json& expression = member(member(step, "pattern"), "Regex");
    for (const auto& split : kPublishedSplits) {
      if (expression == split.expression) return split.expression;
    }
    std::string names;
    for (const auto& split : kPublishedSplits) names += (names.empty() ? "" : ", ") + std::string(split.name);
    refuse("pre_tokenizer: the Split pattern " + json_excerpt(member(step, "pattern")) +
           " is not supported; those of " + names + " are");
  }

  void check_decoder() const {
    const auto all = steps("decoder", "decoders");
    if (all.size() != 1 || member(all[0], "type") != "ByteLevel") {
      refuse("decoder " + json_excerpt(member(json_, "decoder")) + " is not supported; ByteLevel is");
    }
  }

  void read_added_tokens(BpeVocabulary& vocabulary) {
    const Json& all = member(json_, "added_tokens");
    if (!all.is_null() && !all.is_array()) refuse("added_tokens is not a list");
    for (const Json& token : all) {
      const Json &content = member(token, "content"), &id = member(token, "id");
      if (!content.is_string() || !id.is_number_unsigned())
        refuse("added token " + json_excerpt(token) + " has no content or no id");
      for (const char* option : {"single_word", "lstrip", "rstrip"}) {
        if (flag(token, option, false))
          refuse("added token " + json_excerpt(content) + ": " + option + " is not supported");
      }
      const auto& text = content.get_ref<const std::string&>();
      add_token(path_, vocabulary, text,
                static_cast<std::int64_t>(std::min<std::uint64_t>(id.get<std::uint64_t>(), INT32_MAX)));
      const Token number = vocabulary.id_of.at(text);
      if (flag(token, "special", false)) read_.special.push_back(number);
      if (flag(token, "normalized", false)) {
        read_.added_normalized.emplace_back(read_.nfc ? to_nfc(text) : text, number);
      } else {
        read_.added.emplace_back(text, number);
      }
    }
  }

  /// The token that the post-processor puts before a text, else the first of kNames that has an id, else -1.
  Token end_of_text(const BpeVocabulary& vocabulary) const {
    for (const Json& step : steps("post_processor", "processors")) {
      const Json& single = member(step, "single");
      if (!single.is_array() || single.empty()) continue;
      const Json& id = member(member(single[0], "SpecialToken"), "id");
      if (!id.is_string()) continue;
      if (const auto found = vocabulary.id_of.find(id.get<std::string>()); found != vocabulary.id_of.end())
        return found->second;
    }
    constexpr std::array<const char*, 5> kNames = {"<|endoftext|>", "<|end_of_text|>", "<|begin_of_text|>", "</s>",
                                                   "<s>"};
    for (const char* name : kNames) {
      if (const auto found = vocabulary.id_of.find(name); found != vocabulary.id_of.end()) return found->second;
    }
    return -1;
  }

  /// end_of_text, and the tokens with which published models end a text or a turn.
  std::vector<Token> closing_tokens(const BpeVocabulary& vocabulary) const {
    std::vector<Token> tokens;
    if (read_.end_of_text >= 0) tokens.push_back(read_.end_of_text);
    for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "</s>"}) {
      if (const auto found = vocabulary.id_of.find(name); found != vocabulary.id_of.end()) {
        tokens.push_back(found->second);
      }
    }
    return tokens;
  }

  std::string path_;
  const Json& json_;
  TokenizerJson read_;
};

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";

/// The visible text of each id of the bytes and merges.
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

/// ByteLevel alone, which splits as GPT-2 does, or a Split before it.
OrderedJson pre_tokenizer_json(const PublishedSplit& split, OrderedJson byte_level) {
  if (split.expression == kGpt2Split) return byte_level;
  byte_level["use_regex"] = false;
  const OrderedJson step = {
      {"type", "Split"}, {"pattern", {{"Regex", split.expression}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({step, byte_level})}};
}

/// The text of a tokenizer.json. `end_of_text` is an added token after the merges' tokens; "" for none.
std::string written(const std::vector<Merge>& merges, const PublishedSplit& split, const std::string& end_of_text) {
  const auto visible = visible_of(merges);
  OrderedJson vocab = OrderedJson::object(), pairs = OrderedJson::array();
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();  // appended without operator[]'s search: all differ
  for (std::size_t id = 0; id < visible.size(); ++id) entries.Container::emplace_back(visible[id], id);
  if (!end_of_text.empty()) entries.Container::emplace_back(end_of_text, visible.size());
  for (const auto& [left, right] : merges) {
    pairs.push_back(visible[static_cast<std::size_t>(left)] + " " + visible[static_cast<std::size_t>(right)]);
  }
  const OrderedJson added = {{"id", visible.size()}, {"content", end_of_text}, {"single_word", false},
                             {"lstrip", false},      {"rstrip", false},        {"normalized", false},
                             {"special", true}};
  const OrderedJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const OrderedJson json = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", end_of_text.empty() ? OrderedJson::array() : OrderedJson::array({added})},
                            {"normalizer", split.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson(nullptr)},
                            {"pre_tokenizer", pre_tokenizer_json(split, byte_level)},
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

void add_token(const std::string& path, BpeVocabulary& vocabulary, const std::string& visible, std::int64_t id) {
  if (visible.empty()) refuse(path, "id " + std::to_string(id) + " has an empty token");
  if (id < 0 || id >= kMaxIds) {
    refuse(path,
           "token " + json_excerpt(visible) + ": its id is not a number from 0 to " + std::to_string(kMaxIds - 1));
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= vocabulary.visible.size()) vocabulary.visible.resize(index + 1);
  const auto [entry, is_new] = vocabulary.id_of.emplace(visible, static_cast<Token>(id));
  if (entry->second != id) {
    refuse(path, "token " + json_excerpt(visible) + " has two ids, " + std::to_string(entry->second) + " and " +
                     std::to_string(id));
  }
  if (is_new && !vocabulary.visible[index].empty()) {
    refuse(path, "id " + std::to_string(id) + " is given to " + json_excerpt(vocabulary.visible[index]) + " and " +
                     json_excerpt(visible));
  }
  vocabulary.visible[index] = visible;
}

BpeVocabulary read_bpe_vocabulary(const std::string& path, const nlohmann::json& model) {
  const auto vocab = model.find("vocab"), merges = model.find("merges");
  if (vocab == model.end() || !vocab->is_object()) refuse(path, "no model.vocab");
  if (merges == model.end() || !merges->is_array()) refuse(path, "no model.merges");
  BpeVocabulary vocabulary;
  vocabulary.id_of.reserve(vocab->size());
  for (const auto& [visible, id] : vocab->items()) add_token(path, vocabulary, visible, id_from(id));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string visible = to_visible(std::string(1, static_cast<char>(byte)));
    const auto found = vocabulary.id_of.find(visible);
    if (found == vocabulary.id_of.end()) {
      refuse(path, "model.vocab has no token " + json_excerpt(visible) + ", byte " + std::to_string(byte) +
                       ": only vocabularies with all 256 bytes are supported");
    }
    vocabulary.bytes[byte] = found->second;
  }
  vocabulary.merges = read_merges(path, *merges, vocabulary);
  return vocabulary;
}

nlohmann::json parse_tokenizer_json(const std::string& path, std::string_view text) {
  constexpr int kMaxDepth = 32;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth)
      throw Error(Failure::input, path + ": nested more than " + std::to_string(kMaxDepth) + " deep");
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::parse_error& problem) {
    throw Error(Failure::input, path + ": not JSON: wrong or cut off at byte " + std::to_string(problem.byte));
  } catch (const Json::out_of_range&) {
    throw Error(Failure::input, path + ": not JSON: a number that is too large");
  }
}

TokenizerJson read_tokenizer_json(const std::string& path, std::string_view text) {
  const Json json = parse_tokenizer_json(path, text);
  return Reader(path, json).read();
}

std::string tokenizer_json_of(const std::vector<Merge>& merges, const PublishedSplit& split) {
  return written(merges, split, kEndOfText);
}

std::string ByteTokenizer::hugging_face_text() { return written({}, published_split(""), ""); }

}  // namespace kozero::io
