// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/io/safetensors_index.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {
namespace {

constexpr std::size_t kMaxShards = 10'000;
constexpr std::int64_t kMaxIndexBytes = 20'000'000;

[[noreturn]] void refuse(const std::string& path, const std::string& tensor, const std::string& reason) {
  throw Error(Failure::input, path + ": tensor " + shown(tensor) + ": " + reason);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.size() <= 255 &&
         name.find_first_of(std::string("/\\\0", 3)) == name.npos;
}

/// Stops the parser where the text nests deeper than the format does, or gives one tensor twice.
class IndexGuard {
 public:
  explicit IndexGuard(const std::string& path) : path_(path) {}
  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > 3) throw Error(Failure::input, path_ + ": nested deeper than an index is");
    if (event == Event::key && depth == 1) in_map_ = parsed == "weight_map";
    if (event == Event::key && depth == 2 && in_map_ && !names_.insert(parsed.get<std::string>()).second) {
      refuse(path_, parsed.get<std::string>(), "its name is there twice");
    }
    return true;
  }

 private:
  const std::string& path_;
  bool in_map_ = false;
  std::set<std::string> names_;
};

}  // namespace

WeightMap read_safetensors_index(const std::string& path) {
  const auto json =
      nlohmann::json::parse(read_whole_file(path, kMaxIndexBytes), IndexGuard(path), /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw Error(Failure::input, path + ": not an index: no object weight_map");
  }
  WeightMap map;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) refuse(path, name, "its file is not a text");
    if (!is_plain_name(file)) refuse(path, name, shown(file.get<std::string>()) + " is not a file name of this folder");
    map.emplace(name, file);
  }
  if (map.empty()) throw Error(Failure::input, path + ": weight_map is empty");
  if (shards_of(map).size() > kMaxShards) {
    throw Error(Failure::input, path + ": more than " + std::to_string(kMaxShards) + " files");
  }
  return map;
}

std::vector<std::string> shards_of(const WeightMap& map) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  return {names.begin(), names.end()};
}

void check_safetensors_index(const std::string& path, const WeightMap& map,
                             const std::map<std::string, StoredTensor>& tensors) {
  for (const auto& [name, file] : map) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) refuse(path, name, "it is not in " + shown(file) + ", where the index has it");
    const std::string place = std::filesystem::path(found->second.file->path()).filename().string();
    if (place != file) refuse(path, name, "the index has it in " + shown(file) + ", but it is in " + place);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!map.contains(name)) refuse(tensor.file->path(), name, "the index does not know it");
  }
}

std::string safetensors_index_text(const WeightMap& map, std::int64_t total_bytes) {
  const nlohmann::ordered_json json = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
  return json.dump(2) + "\n";
}

}  // namespace kozero::io
