// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/prepared_folder.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 2;  // shards have hashes
constexpr std::int64_t kMaxDescriptionBytes = std::int64_t{16} << 20;

Json json_of(const TokenSplit& split) {
  Json files = Json::array();
  for (const auto& file : split.files) files.push_back(fs::path(file).filename().string());
  return {{"files", files}, {"tokens", split.tokens}, {"bytes", split.bytes}};
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

std::string token_cache(const std::string& name) {
  const auto variable = [](const char* key) {
    return std::string(std::getenv(key) == nullptr ? "" : std::getenv(key));
  };
  const std::string home = variable("HOME");
  const std::string temporary = variable("TMPDIR");
  for (const std::string& place :
       {variable("XDG_CACHE_HOME"), home.empty() ? "" : home + "/.cache", temporary.empty() ? "/tmp" : temporary}) {
    if (place.empty()) continue;
    const fs::path folder = fs::path(place) / "kozero";
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (!problem && ::access(folder.c_str(), W_OK | X_OK) == 0)
      return (folder / ("tokens-" + digits_of(name))).string();
  }
  throw Error(Failure::write, "no folder for tokens: XDG_CACHE_HOME, HOME/.cache and TMPDIR cannot be written");
}

std::string fingerprint_of(const PrepareOrder& order, const std::vector<TextFile>& files) {
  std::ostringstream all;
  all.precision(17);
  const bool is_file = path_kind(order.tokenizer) == PathKind::file;
  all << kFormatVersion << '\0' << (is_file ? absolute(order.tokenizer) : order.tokenizer) << '\0' << order.val_fraction
      << '\0';
  if (is_file) all << read_whole_file(order.tokenizer, INT64_MAX) << '\0';
  for (const auto& file : files) all << absolute(file.path) << '\0' << file.bytes << '\0' << file.modified << '\0';
  return digits_of(all.str());
}

void write_description(const std::string& folder, const PreparedTokens& tokens) {
  const Json json = {{"format", "kozero-tokens"},
                     {"version", kFormatVersion},
                     {"fingerprint", tokens.fingerprint},
                     {"tokenizer", tokens.tokenizer},
                     {"tokenizer_file", fs::path(tokens.tokenizer_file).filename().string()},
                     {"vocab", tokens.vocab},
                     {"train", json_of(tokens.train)},
                     {"val", json_of(tokens.val)}};
  write_whole_file((fs::path(folder) / kTokensDescription).string(), json.dump(2) + "\n");
}

PreparedTokens read_prepared(const std::string& folder) {
  const std::string path = (fs::path(folder) / kTokensDescription).string();
  try {
    const Json json = Json::parse(read_whole_file(path, kMaxDescriptionBytes));
    if (json.at("format") != "kozero-tokens" || json.at("version") != kFormatVersion) {
      throw Error(Failure::input, path + ": not a description of tokens of version " + std::to_string(kFormatVersion));
    }
    PreparedTokens tokens;
    tokens.train = split_from(folder, json.at("train"));
    tokens.val = split_from(folder, json.at("val"));
    json.at("tokenizer").get_to(tokens.tokenizer);
    tokens.tokenizer_file = inside(folder, json.at("tokenizer_file").get<std::string>());
    json.at("vocab").get_to(tokens.vocab);
    json.at("fingerprint").get_to(tokens.fingerprint);
    return tokens;
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  }
}

}  // namespace kozero::io
