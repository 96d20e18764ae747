// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// corpus_epoch.cpp: reads and writes the text of an epoch's files, and finds them.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/data/corpus_epoch.hpp>

namespace kozero::data {
namespace {

using Json = nlohmann::ordered_json;

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().generic_string();
}

[[noreturn]] void refuse(const TextFile& file, const std::string& what) {
  throw Error(Failure::input,
              fmt::format("{}: {} {} since an epoch of this run had it; bring it back, or go on with the files as they "
                          "are, and other bits, by data.grow=false",
                          file.key, file.path, what));
}

}  // namespace

CorpusEpoch corpus_epoch_of(const std::string& text) {
  CorpusEpoch epoch;
  if (text.empty()) return epoch;
  try {
    const Json json = Json::parse(text);
    json.at("epoch").get_to(epoch.epoch);
    json.at("steps_before").get_to(epoch.steps_before);
    json.at("found").get_to(epoch.is_found);
    for (const auto& each : json.at("files")) {
      TextFile file;
      each.at(0).get_to(file.path);
      each.at(1).get_to(file.bytes);
      each.at(2).get_to(file.source);
      epoch.files.push_back(std::move(file));
    }
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, std::string("the record of an epoch's files: ") + problem.what());
  }
  return epoch;
}

std::string text_of(const CorpusEpoch& epoch) {
  Json files = Json::array();
  for (const auto& file : epoch.files) files.push_back({absolute(file.path), file.bytes, file.source});
  return Json{{"epoch", epoch.epoch},
              {"steps_before", epoch.steps_before},
              {"found", epoch.is_found},
              {"files", std::move(files)}}
      .dump();
}

CorpusEpoch epoch_after(CorpusEpoch epoch, std::int64_t steps_before) {
  require(epoch.is_found, "the epoch before is not found");
  return {epoch.epoch + 1, steps_before, false, std::move(epoch.files)};
}

std::int64_t find_epoch(CorpusEpoch& epoch, const std::vector<TextSource>& sources, SkippedFiles& skipped) {
  std::vector<TextFile> there = find_text(sources, skipped);
  std::map<std::string, TextFile*> by_path;
  for (auto& file : there) by_path[absolute(file.path)] = &file;
  const bool is_first = epoch.files.empty();
  std::vector<TextFile> files;
  for (const auto& known : epoch.files) {
    const auto found = by_path.find(known.path);
    TextFile named = known;
    named.key = sources.at(std::min(known.source, sources.size() - 1)).key;
    if (found == by_path.end()) refuse(named, "is gone");
    if (found->second->bytes != known.bytes) {
      refuse(named, fmt::format("has {} bytes, not {},", found->second->bytes, known.bytes));
    }
    if (found->second->source != known.source) {
      refuse(named, fmt::format("is of source {}, not {},", found->second->source, known.source));
    }
    files.push_back(*found->second);
    by_path.erase(found);
  }
  std::int64_t added = 0;
  for (const auto& file : there) {
    if (epoch.is_found || !by_path.contains(absolute(file.path))) continue;
    files.push_back(file);
    ++added;
  }
  // The files of a source are one behind the other, the new ones last.
  std::ranges::stable_sort(files, {}, &TextFile::source);
  epoch.files = std::move(files);
  epoch.is_found = true;
  return is_first ? 0 : added;
}

}  // namespace kozero::data
