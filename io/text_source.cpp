// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/io/text_source.hpp>

namespace kozero::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBinaryProbe = 8192;
constexpr std::array<std::string_view, 2> kSkippedNames = {"node_modules", "__pycache__"};
constexpr std::array<std::string_view, 3> kSkippedBy = {"CMakeCache.txt", "metrics.jsonl", "tokens.json"};

bool is_skipped_folder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.starts_with('.')) return true;
  if (std::find(kSkippedNames.begin(), kSkippedNames.end(), name) != kSkippedNames.end()) return true;
  return std::any_of(kSkippedBy.begin(), kSkippedBy.end(), [&](std::string_view marker) {
    std::error_code ignored;
    return fs::exists(folder / marker, ignored);
  });
}

bool is_binary(const std::string& path) {
  std::array<char, kBinaryProbe> head{};
  const auto end = head.begin() + FileDescriptor(path, FileDescriptor::Use::read).read_up_to(head, 0);
  return std::find(head.begin(), end, '\0') != end;
}

TextFile describe(const fs::path& path) {
  return TextFile{path.generic_string(), static_cast<std::int64_t>(fs::file_size(path)),
                  static_cast<std::int64_t>(fs::last_write_time(path).time_since_epoch().count())};
}

/// Appends the text files below `folder`, unsorted.
void collect(const fs::path& folder, std::vector<TextFile>& found) {
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_symlink()) continue;
    if (entry->is_directory()) {
      if (is_skipped_folder(entry->path())) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !entry->path().filename().string().starts_with('.') &&
               entry->file_size() > 0 && !is_binary(entry->path().string())) {
      found.push_back(describe(entry->path()));
    }
  }
}

std::vector<TextFile> find_below(const std::string& path) {
  if (!fs::exists(path)) throw Error(Failure::input, "data.text: " + path + ": no such file or folder");
  std::vector<TextFile> found;
  if (fs::is_directory(path)) {
    collect(path, found);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  } else {
    if (is_binary(path)) throw Error(Failure::input, "data.text: " + path + ": not text: it holds a NUL byte");
    found.push_back(describe(path));
  }
  return found;
}

/// Whether every split pattern cuts between the two characters: "word| next" and "word|\n",
/// but "end.\n" may be one piece.
bool always_cut(char before, char after) {
  const auto is_alnum = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  if (after == '\n' || after == '\r') return is_alnum(before);
  return (after == ' ' || (after >= '\t' && after <= '\r')) && before > ' ' && before < '\x7f';
}

/// Where to end a block that has more text behind it: see the header. A block without such a place ends before the
/// last character's first byte, so that no UTF-8 sequence is cut.
std::size_t cut(std::string_view text) {
  for (std::size_t end = text.size() - 1; end > 0; --end) {
    if (always_cut(text[end - 1], text[end])) return end;
  }
  std::size_t end = text.size() - 1;
  while (end > 1 && text.size() - end < 4 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::max<std::size_t>(end, 1);
}

}  // namespace

std::vector<TextFile> find_text(const std::vector<std::string>& paths) {
  std::vector<TextFile> files;
  std::set<std::string> seen;
  try {
    for (const auto& path : paths) {
      for (auto& file : find_below(path)) {
        if (seen.insert(fs::canonical(file.path).string()).second) files.push_back(std::move(file));
      }
    }
  } catch (const fs::filesystem_error& problem) {
    throw Error(Failure::input, "data.text: " + problem.path1().string() + ": " + problem.code().message());
  }
  if (total_bytes(files) == 0) throw Error(Failure::input, "data.text: no text in the files and folders given");
  return files;
}

std::int64_t total_bytes(const std::vector<TextFile>& files) {
  std::int64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  return sum;
}

TextReader::TextReader(std::vector<TextFile> files, std::int64_t block_bytes)
    : files_(std::move(files)), block_bytes_(static_cast<std::size_t>(block_bytes)) {
  require(block_bytes >= 8, "TextReader: block of " + std::to_string(block_bytes) + " bytes");
}

/// Reads on in the open file until more than a block is at hand; false when the file has no more.
bool TextReader::fill() {
  const std::size_t held = ahead_.size();
  ahead_.resize(block_bytes_ + 1);
  const std::int64_t got = file_->read_up_to(std::span(ahead_).subspan(held), file_offset_);
  ahead_.resize(held + static_cast<std::size_t>(got));
  file_offset_ += got;
  return ahead_.size() > block_bytes_;
}

bool TextReader::next(TextBlock& block) {
  while (ahead_.empty() && !(file_ && fill()) && ahead_.empty()) {
    if (next_file_ == files_.size()) return false;
    file_.emplace(files_[next_file_].path, FileDescriptor::Use::read);
    file_offset_ = 0;
    ++next_file_;
    starts_document_ = true;
  }
  const bool more = ahead_.size() > block_bytes_ || fill();
  const std::size_t end = more ? cut(std::string_view(ahead_).substr(0, block_bytes_ + 1)) : ahead_.size();
  block.text.assign(ahead_, 0, end);
  block.offset = offset_;
  block.starts_document = std::exchange(starts_document_, false);
  ahead_.erase(0, end);
  offset_ += static_cast<std::int64_t>(end);
  return true;
}

}  // namespace kozero::io
