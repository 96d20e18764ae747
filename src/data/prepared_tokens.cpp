// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepared_tokens.cpp: tokens.json, which describes a folder of prepared tokens, and the fingerprint in it.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_shard.hpp>
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 3;  // 2: shards have hashes; 3: special tokens in a text are ordinary text
constexpr std::int64_t kMaxDescriptionBytes = std::int64_t{16} << 20;

Json json_of(const TokenSplit& split) {
  Json files = Json::array();
  for (const auto& file : split.files) files.push_back(fs::path(file).filename().string());
  Json json = {{"files", files}, {"tokens", split.tokens}, {"bytes", split.bytes}};
  if (split.trained > 0) json["trained"] = split.trained;
  return json;
}

Json json_of(const DocumentCounts& counts) {
  return {{"documents", counts.documents},
          {"empty", counts.empty},
          {"filtered", counts.filtered},
          {"duplicates", counts.duplicates},
          {"bad", counts.bad},
          {"bad_places", counts.bad_places},
          {"unnamed_json", counts.unnamed_json},
          {"unnamed_json_files", counts.unnamed_json_files}};
}

DocumentCounts counts_from(const Json& json) {
  DocumentCounts counts;
  json.at("documents").get_to(counts.documents);
  json.at("empty").get_to(counts.empty);
  json.at("filtered").get_to(counts.filtered);
  json.at("duplicates").get_to(counts.duplicates);
  json.at("bad").get_to(counts.bad);
  json.at("bad_places").get_to(counts.bad_places);
  json.at("unnamed_json").get_to(counts.unnamed_json);
  json.at("unnamed_json_files").get_to(counts.unnamed_json_files);
  return counts;
}

/// What of the rules changes the documents; "" for plain rules, so that tokens of plain text keep their fingerprint.
std::string text_of(const DocumentRules& rules) {
  std::string text;
  if (rules.text_field != DocumentRules().text_field) text += "field " + rules.text_field + '\0';
  if (const NumberFilter& filter = rules.filter; !filter.column.empty()) {
    text += "filter " + filter.column + '\0' + std::to_string(static_cast<int>(filter.comparison)) + '\0' +
            std::to_string(std::bit_cast<std::uint64_t>(filter.bound)) + '\0';
  }
  if (!rules.chat_template.empty()) text += "chat " + rules.chat_template + '\0';
  if (rules.skip_bad) text += std::string("skip bad") + '\0';
  return text;
}

/// A file name from the description, inside the folder and nowhere else.
std::string inside(const std::string& folder, const std::string& name) {
  if (name.empty() || fs::path(name).filename() != name || name == "..") {
    throw Error(Failure::input, folder + "/" + kTokensDescription + ": file name \"" + name + "\" leaves the folder");
  }
  return (fs::path(folder) / name).string();
}

TokenSplit split_from(const std::string& folder, const Json& json) {
  TokenSplit split;
  for (const auto& name : json.at("files")) split.files.push_back(inside(folder, name.get<std::string>()));
  json.at("tokens").get_to(split.tokens);
  json.at("bytes").get_to(split.bytes);
  split.trained = json.value("trained", std::int64_t{0});
  return split;
}

/// 16 hexadecimal digits.
std::string digits_of(const std::string& text) {
  std::array<char, 17> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), stream_key(0, text), 16).ptr;
  const std::string shortest(digits.begin(), end);
  return std::string(16 - shortest.size(), '0') + shortest;
}

/// The same from any working directory.
std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().generic_string(); }

}  // namespace

std::string fingerprint_of(const PrepareOrder& order, const std::vector<TextFile>& files) {
  std::ostringstream all;
  all.precision(17);
  const bool is_file = io::path_kind(order.tokenizer) == io::PathKind::file;
  all << kFormatVersion << '\0' << (is_file ? absolute(order.tokenizer) : order.tokenizer) << '\0' << order.val_fraction
      << '\0';
  if (!order.split.empty() && io::bpe_size(order.tokenizer)) all << order.split << '\0';
  if (is_file) all << io::read_named_file(order.tokenizer, INT64_MAX) << '\0';
  if (order.shard_tokens != PrepareOrder().shard_tokens) all << "shards of " << order.shard_tokens << '\0';
  if (order.splits_sources) all << "sources are split" << '\0';
  if (order.deduplicate) all << "deduplicate" << '\0';
  for (const auto& file : files) {
    all << absolute(file.path) << '\0' << file.bytes << '\0' << file.modified << '\0';
    if (!order.sources.empty()) all << "source of both sides " << file.source << '\0';
    all << text_of(file.rules);
  }
  return digits_of(all.str());
}

void write_description(const std::string& folder, const PreparedTokens& tokens) {
  Json json = {{"format", "kozero-tokens"},
               {"version", kFormatVersion},
               {"fingerprint", tokens.fingerprint},
               {"tokenizer", tokens.tokenizer},
               {"tokenizer_file", fs::path(tokens.tokenizer_file).filename().string()},
               {"vocab", tokens.vocab},
               {"byte_order_marks", tokens.byte_order_marks},
               {"crlf_line_ends", tokens.crlf_line_ends},
               {"special_tokens", tokens.special_tokens},
               {"documents", json_of(tokens.counts)},
               {"train", json_of(tokens.train)},
               {"val", json_of(tokens.val)}};
  if (!tokens.chat_template.empty()) json["chat_template"] = tokens.chat_template;
  for (const auto& source : tokens.train_sources) json["train_sources"].push_back(json_of(source));
  for (const auto& source : tokens.val_sources) json["val_sources"].push_back(json_of(source));
  io::write_whole_file((fs::path(folder) / kTokensDescription).string(), json.dump(2) + "\n");
}

PreparedTokens read_prepared(const std::string& folder) {
  const std::string path = (fs::path(folder) / kTokensDescription).string();
  try {
    const Json json = Json::parse(io::read_whole_file(path, kMaxDescriptionBytes));
    if (json.at("format") != "kozero-tokens" || json.at("version") != kFormatVersion) {
      throw Error(Failure::input, path + ": not a description of tokens of version " + std::to_string(kFormatVersion));
    }
    PreparedTokens tokens;
    tokens.folder = folder;
    tokens.byte_order_marks = json.value("byte_order_marks", std::int64_t{0});
    tokens.crlf_line_ends = json.value("crlf_line_ends", std::int64_t{0});
    tokens.special_tokens = json.value("special_tokens", std::int64_t{0});
    if (json.contains("documents")) tokens.counts = counts_from(json["documents"]);
    tokens.reused = true;
    tokens.train = split_from(folder, json.at("train"));
    tokens.val = split_from(folder, json.at("val"));
    for (const auto& source : json.value("train_sources", Json::array())) {
      tokens.train_sources.push_back(split_from(folder, source));
    }
    for (const auto& source : json.value("val_sources", Json::array())) {
      tokens.val_sources.push_back(split_from(folder, source));
    }
    json.at("tokenizer").get_to(tokens.tokenizer);
    tokens.tokenizer_file = inside(folder, json.at("tokenizer_file").get<std::string>());
    json.at("vocab").get_to(tokens.vocab);
    tokens.chat_template = json.value("chat_template", "");
    json.at("fingerprint").get_to(tokens.fingerprint);
    return tokens;
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  }
}

bool is_current(const std::string& folder, const std::string& fingerprint) {
  if (!io::is_there((fs::path(folder) / kTokensDescription).string())) return false;
  try {
    const auto tokens = read_prepared(folder);
    const auto whole = [&](const TokenSplit& split) {
      if (split.files.empty()) return split.tokens == 0;
      const TokenShards all(split.files, tokens.vocab);
      return all.num_tokens() == split.tokens &&
             std::all_of(all.shards().begin(), all.shards().end(), [&](const TokenShard& shard) {
               return shard.recorded_hashes() && (tokens.chat_template.empty() || recorded_answers(shard));
             });
    };
    return tokens.fingerprint == fingerprint && fs::exists(tokens.tokenizer_file) && whole(tokens.train) &&
           whole(tokens.val);
  } catch (const Error&) {
    return false;  // damaged: made anew
  }
}

}  // namespace kozero::data
