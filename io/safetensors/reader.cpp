// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// reader.cpp: opens files and an index of shards with all checks, and reads values by pread, 16 bits widened in place.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include <kozero/core/error.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/safetensors/float_formats.hpp"
#include "io/safetensors/reader.hpp"

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

/// Stops the parser if the text nests deeper than the format, or names one tensor twice.
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

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian numbers");

constexpr std::int64_t kLengthBytes = 8;

/// The header's text, after a check of its length.
std::string read_header(const std::string& path, const FileDescriptor& file) {
  const std::int64_t size = file.size();
  if (size < kLengthBytes) {
    throw Error(Failure::input, path + ": " + std::to_string(size) + " bytes are too few for a safetensors file");
  }
  std::uint64_t length = 0;
  file.read_at({reinterpret_cast<char*>(&length), kLengthBytes}, 0);
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    throw Error(Failure::input, path + ": a header of " + std::to_string(length) + " bytes; accepted are at most " +
                                    std::to_string(kMaxHeaderBytes));
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    throw Error(Failure::input, path + ": a header of " + std::to_string(length) + " bytes in a file of " +
                                    std::to_string(size) + ": it is truncated");
  }
  std::string header(length, '\0');
  file.read_at(header, kLengthBytes);
  return header;
}

/// 16-bit values in the upper half of `to`'s memory become floats in place, first to last.
template <class Convert>
void widen(float* to, std::int64_t count, const Convert& convert) {
  const char* from = reinterpret_cast<const char*>(to) + count * 2;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    to[i] = convert(bits);
  }
}

}  // namespace

WeightMap read_safetensors_index(const std::string& path) {
  const auto json =
      nlohmann::json::parse(read_named_file(path, kMaxIndexBytes), IndexGuard(path), /*allow_exceptions=*/false);
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
    const std::string actual = std::filesystem::path(found->second.file->path()).filename().string();
    if (actual != file) refuse(path, name, "the index has it in " + shown(file) + ", but it is in " + actual);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!map.contains(name)) refuse(tensor.file->path(), name, "the index does not know it");
  }
}

std::string safetensors_index_text(const WeightMap& map, std::int64_t total_bytes) {
  const nlohmann::ordered_json json = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
  return json.dump(2) + "\n";
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path, FileDescriptor::Use::read), opened_(file_.stamp()) {
  require_same_stamp(path, opened_);
  const std::string header = read_header(path, file_);
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(header.size());
  entries_ = parse_safetensors_header(path, header, file_.size() - data_begin_);
}

void SafetensorsFile::read(const TensorEntry& entry, std::int64_t first, std::int64_t count, float* to) const {
  require(first >= 0 && count >= 0 && first <= entry.extent() - count, "SafetensorsFile::read: not in the tensor");
  const bool wide = entry.dtype == "F32";
  if (!wide && entry.dtype != "F16" && entry.dtype != "BF16") {
    throw Error(Failure::input,
                path_ + ": tensor " + shown(entry.name) + ": dtype " + entry.dtype + "; accepted are F32, F16, BF16");
  }
  const std::int64_t width = wide ? 4 : 2;
  char* const into = reinterpret_cast<char*>(to) + (wide ? 0 : count * 2);
  file_.read_at({into, static_cast<std::size_t>(count * width)}, data_begin_ + entry.begin + first * width);
  if (entry.dtype == "F16") widen(to, count, float_of_f16);
  if (entry.dtype == "BF16") widen(to, count, float_of_bf16);
}

std::string SafetensorsFile::fingerprint() const {
  constexpr std::int64_t kSample = 64;
  std::string bytes(static_cast<std::size_t>(data_begin_), '\0');
  file_.read_at(bytes, 0);
  for (const auto& entry : entries_) {
    std::array<char, kSample> sample{};
    const auto extent = static_cast<std::size_t>(std::min(kSample, entry.end - entry.begin));
    file_.read_at(std::span(sample).first(extent), data_begin_ + entry.begin);
    bytes.append(sample.data(), extent);
  }
  return xxh3_128(bytes + std::to_string(file_.size()));
}

void SafetensorsFile::require_unchanged() const {
  if (file_.stamp() == opened_) return;
  throw Error(Failure::input, path_ + ": it was written to while it was read; try again when it is complete");
}

std::string SafetensorsFolder::fingerprint() const {
  std::string all;
  for (const auto& file : files_) all += file.fingerprint();
  return xxh3_128(all);
}

void SafetensorsFolder::require_unchanged() const {
  for (const auto& file : files_) file.require_unchanged();
}

SafetensorsFolder::SafetensorsFolder(const std::string& folder) {
  const std::filesystem::path base(folder);
  path_ = (base / kSafetensorsFile).string();
  const std::string index = (base / kSafetensorsIndex).string();
  if (is_there(path_)) {
    if (is_there(index))
      note_ = path_ + ": this file is read, as by transformers; " + index + " and its files are not read";
    files_.emplace_back(path_);
    add(files_.front());
    return;
  }
  if (!is_there(index)) {
    const char* const pickle = "pytorch_model.bin";
    const bool has_pickle = is_there((base / pickle).string()) || is_there((base / pickle).string() + ".index.json");
    throw Error(
        Failure::input,
        folder + ": no " + kSafetensorsFile + " and no " + kSafetensorsIndex +
            (has_pickle ? std::string("; ") + pickle + " is not read: convert it with transformers, " +
                              "AutoModelForCausalLM.from_pretrained(\"" + folder + "\").save_pretrained(\"NEW\")"
                        : ""));
  }
  path_ = index;
  const auto map = read_safetensors_index(index);
  for (const auto& name : shards_of(map)) files_.emplace_back((base / name).string());
  for (const auto& file : files_) add(file);
  check_safetensors_index(index, map, tensors_);
}

void SafetensorsFolder::add(const SafetensorsFile& file) {
  for (const auto& entry : file.entries()) {
    const auto [known, is_first] = tensors_.emplace(entry.name, StoredTensor{&file, &entry});
    if (is_first) continue;
    throw Error(Failure::input, file.path() + ": tensor " + shown(entry.name) + ": it is in " +
                                    std::filesystem::path(known->second.file->path()).filename().string() + " too");
  }
}

}  // namespace kozero::io
