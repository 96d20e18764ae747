// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// source_hashes.cpp: reads, compares and writes the hashes of source files.
#include "src/data/source_hashes.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>

namespace kozero::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSourcesFile = "sources.json";
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
constexpr std::int64_t kChunk = std::int64_t{1} << 20;

/// The same from any working directory.
std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().generic_string(); }

/// Calls visit(path, hash) for each file in folder/sources.json; an unreadable one has none.
template <class Visit>
void for_each_source(const std::string& folder, const Visit& visit) {
  const std::string path = (fs::path(folder) / kSourcesFile).string();
  if (!io::is_there(path)) return;
  try {
    const Json json = Json::parse(io::read_whole_file(path, kMostBytes));
    for (const auto& file : json.at("files")) {
      visit(file.at(0).get<std::string>(),
            SourceHash{file.at(1).get<std::int64_t>(), file.at(2).get<std::int64_t>(), file.at(3).get<std::string>()});
    }
  } catch (const nlohmann::json::exception&) {  // nothing to compare with
  }
}

std::string digits_of(const std::string& path) {
  return io::xxh3_128_of_file(io::FileDescriptor(path, io::FileDescriptor::Use::read));
}

[[noreturn]] void refuse_damaged(const std::string& path) {
  throw Error(
      Failure::input,
      fmt::format("{}: it has the size and the time that it had when tokens were made of it, and other bytes: it "
                  "was damaged, or changed by a program that keeps times; restore it, or accept it as it is: "
                  "touch FILE",
                  path));
}

}  // namespace

SourceHashing::SourceHashing(const std::vector<TextFile>& files, const std::string& tokens,
                             std::function<void(const std::string&)> say)
    : files_(files), say_(std::move(say)) {
  std::set<std::string> paths;
  for (const auto& file : files) paths.insert(absolute(file.path));
  const auto take = [&](const std::string& path, const SourceHash& hash) {
    if (paths.contains(path)) known_.emplace(path, hash);
  };
  for_each_source(tokens, take);
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(tokens, absent)) {
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) {
      for_each_source(entry.path().string(), take);
    }
  }
}

void SourceHashing::advance(std::int64_t offset) {
  while (hashes_.size() < files_.size() && offset >= begin_ + files_[hashes_.size()].bytes) end_file();
  if (hashes_.size() < files_.size() && offset - begin_ - done_ >= kChunk) hash_to(offset - begin_);
}

void SourceHashing::finish(const std::string& folder) {
  while (hashes_.size() < files_.size()) end_file();
  Json list = Json::array();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    list.push_back({absolute(files_[i].path), hashes_[i].bytes, hashes_[i].modified, hashes_[i].xxh3});
  }
  const Json json = {{"format", "kozero-sources"}, {"version", 1}, {"files", std::move(list)}};
  io::write_whole_file((fs::path(folder) / kSourcesFile).string(),
                       json.dump(0, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// Hashes the present file's bytes before `end`.
void SourceHashing::hash_to(std::int64_t end) {
  if (end - done_ <= 0) return;
  if (!file_) file_.emplace(files_[hashes_.size()].path, io::FileDescriptor::Use::read);
  std::vector<char> chunk(static_cast<std::size_t>(std::min(kChunk, end - done_)));
  for (std::int64_t got = 1; got > 0 && done_ < end; done_ += got) {
    const auto here = static_cast<std::size_t>(std::min(std::ssize(chunk), end - done_));
    got = file_->read_up_to(std::span(chunk).first(here), done_);
    hash_.add({chunk.data(), static_cast<std::size_t>(got)});
  }
}

void SourceHashing::end_file() {
  const TextFile& file = files_[hashes_.size()];
  hash_to(file.bytes);
  if (file_ && (done_ != file.bytes || file_->size() != file.bytes)) {
    throw Error(
        Failure::input,
        fmt::format("{}: {}: it changed while it was read, from {} to {} bytes; nothing of it is kept; start again "
                    "when it is complete",
                    file.key, file.path, file.bytes, file_->size()));
  }
  const SourceHash now{file.bytes, file.modified, hash_.digits()};
  bool is_changed = false;
  const auto [first, last] = known_.equal_range(absolute(file.path));
  for (auto known = first; known != last; ++known) {
    if (known->second.bytes != now.bytes || known->second.xxh3 == now.xxh3) continue;
    if (known->second.modified == now.modified) refuse_damaged(file.key + ": " + file.path);
    is_changed = true;
  }
  if (is_changed) {
    say_(fmt::format("{}: {}: it has the size of the file of which tokens were made before, but other bytes", file.key,
                     file.path));
  }
  hashes_.push_back(now);
  begin_ += file.bytes;
  done_ = 0;
  hash_ = io::RunningHash();
  file_.reset();
}

void require_same_sources(const std::string& folder) {
  for_each_source(folder, [&](const std::string& path, const SourceHash& hash) {
    if (digits_of(path) != hash.xxh3) refuse_damaged(path);
  });
}

}  // namespace kozero::data
