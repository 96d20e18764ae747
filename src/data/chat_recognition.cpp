// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// chat_recognition.cpp: which built-in chat template a model's folder has, by a hash of the template's text.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include <kozero/core/error.hpp>
#include <kozero/data/document_rules.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/posix/readable.hpp"

namespace kozero::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMostBytes = std::int64_t{16} << 20;
constexpr std::array<std::string_view, 6> kNames = {"chatml", "qwen2", "qwen2.5", "qwen3", "llama3", "plain"};

/// XXH3-128 of a published template, and the built-in one that writes the same text for messages without tools.
struct PublishedTemplate {
  std::string_view digits;
  std::string_view name;
};
constexpr std::array<PublishedTemplate, 8> kPublished = {{
    {"09facc0e4aa943189799ad6e2dea0594", "llama3"},   // Meta-Llama-3-8B-Instruct
    {"e580c2da83415028d5d943bd0bd9082f", "qwen2"},    // Qwen2-7B-Instruct
    {"7c4c17cbc95b1d56c79034a9d5f0ae58", "qwen2"},    // the same with \n spelled out
    {"c63bde148c12b98b639547fe4d33fa67", "qwen2.5"},  // Qwen2.5-7B-Instruct
    {"0fab82ce8f4d5175c9e0155c80737cf2", "qwen3"},    // Qwen3-8B
    {"cc9ddd5a40bc1c0c8fb5d937b1e8f5d0", "chatml"},   // Qwen3-4B-Instruct-2507
    {"f0a6a8278439fdb056191e205a440263", "chatml"},   // ChatML of OpenHermes and of trl's setup_chat_format
    {"577a7fce73f72e1ee2be9fd6966bb5eb", "chatml"},   // the same with \n spelled out
}};

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Failure::deck,
              fmt::format("data.chat_template = \"auto\": {}; give one of {}", why, fmt::join(kNames, ", ")));
}

/// The member of tokenizer_config.json: a text, or a list of named ones, of which "default" counts.
std::string template_in(const std::string& path) {
  try {
    const Json json = Json::parse(io::read_named_file(path, kMostBytes));
    const Json found = json.value("chat_template", Json());
    if (found.is_string()) return found.get<std::string>();
    for (const auto& each : found.is_array() ? found : Json::array()) {
      if (each.value("name", "") == "default") return each.value("template", "");
    }
    return "";
  } catch (const nlohmann::json::exception& problem) {
    refuse(path + ": " + io::on_one_line(problem.what()));
  }
}

/// "" if the tokenizer is no file, or has no template beside it.
std::string template_beside(const std::string& tokenizer) {
  if (!io::is_there(tokenizer)) return "";
  const fs::path folder = fs::path(tokenizer).parent_path();
  if (const std::string path = (folder / "chat_template.jinja").string(); io::is_there(path)) {
    return io::read_named_file(path, kMostBytes);
  }
  const std::string path = (folder / "tokenizer_config.json").string();
  return io::is_there(path) ? template_in(path) : "";
}

}  // namespace

std::string chat_template_of(const std::string& given, const std::string& tokenizer) {
  if (given == "none") return "";
  if (std::ranges::find(kNames, given) != kNames.end()) return given;
  if (given != "auto") {
    throw Error(Failure::deck, fmt::format("data.chat_template = \"{}\": accepted: none, auto, {}",
                                           io::on_one_line(given), fmt::join(kNames, ", ")));
  }
  const std::string text = template_beside(tokenizer);
  if (text.empty()) refuse("no template beside the tokenizer \"" + io::on_one_line(tokenizer) + "\"");
  const std::string digits = io::xxh3_128(text);
  const auto* const found = std::ranges::find(kPublished, digits, &PublishedTemplate::digits);
  if (found == kPublished.end())
    refuse("the template of " + io::on_one_line(tokenizer) + " is not known (XXH3 " + digits + ")");
  return std::string(found->name);
}

}  // namespace kozero::data
