// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/readable.hpp"
#include "io/text/text_source.hpp"

namespace kozero::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBinaryProbe = 8192;
constexpr std::array<std::string_view, 2> kIgnoredNames = {"node_modules", "__pycache__"};
constexpr std::array<std::string_view, 3> kMadeBy = {"CMakeCache.txt", "metrics.jsonl", "tokens.json"};

bool is_ignored_name(const std::string& name) {
  return name.starts_with('.') || std::find(kIgnoredNames.begin(), kIgnoredNames.end(), name) != kIgnoredNames.end();
}

bool is_made_folder(const fs::path& folder) {
  return std::any_of(kMadeBy.begin(), kMadeBy.end(), [&](std::string_view marker) {
    std::error_code ignored;
    return fs::exists(folder / marker, ignored);
  });
}

/// Of bytes that are not UTF-8 from `at` on, in a file or its beginning.
std::string not_utf8(std::string_view bytes, std::size_t at, std::int64_t offset) {
  return fmt::format("not UTF-8: byte {} is 0x{:02X}", offset + static_cast<std::int64_t>(at),
                     static_cast<unsigned char>(bytes[at]));
}

/// Why a file is no text, by its first bytes; "" where it may be.
std::string objection(const std::string& path) {
  std::array<char, kBinaryProbe> head{};
  const auto extent = static_cast<std::size_t>(FileDescriptor(path, FileDescriptor::Use::read).read_up_to(head, 0));
  const std::string_view bytes(head.data(), extent);
  if (bytes.find('\0') != std::string_view::npos) return "binary";
  const std::size_t good = utf8_prefix(bytes);
  const bool may_be_cut = extent == kBinaryProbe && extent - good < 4;
  return good == extent || may_be_cut ? "" : not_utf8(bytes, good, 0);
}

TextFile describe(const fs::path& path) {
  return TextFile{path.generic_string(), static_cast<std::int64_t>(fs::file_size(path)),
                  static_cast<std::int64_t>(fs::last_write_time(path).time_since_epoch().count())};
}

/// Appends the text files below `folder`, unsorted.
void collect(const fs::path& folder, std::vector<TextFile>& found, SkippedFiles& skipped) {
  const auto skip = [&](const fs::path& path, const std::string& why) {
    skipped.push_back(path.generic_string() + " (" + why + ")");
  };
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    const bool is_ignored = is_ignored_name(path.filename().string());
    if (entry->is_symlink()) {
      if (!is_ignored) skip(path, "a link");
    } else if (entry->is_directory()) {
      const bool is_made = !is_ignored && is_made_folder(path);
      if (is_made) skip(path, "a build, run or token folder");
      if (is_made || is_ignored) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !is_ignored && entry->file_size() > 0) {
      const std::string reason = objection(path.string());
      if (reason.empty()) found.push_back(describe(path));
      if (!reason.empty()) skip(path, reason);
    }
  }
}

[[noreturn]] void refuse_not_utf8(const std::string& path, const std::string& reason) {
  throw Error(Failure::input,
              "data.text: " + path + ": " + reason + "; convert it, for example: iconv -f LATIN1 -t UTF-8 FILE >NEW");
}

std::vector<TextFile> find_below(const std::string& path, SkippedFiles& skipped) {
  if (!fs::exists(path)) throw Error(Failure::input, "data.text: " + path + ": no such file or folder");
  std::vector<TextFile> found;
  if (fs::is_directory(path)) {
    collect(path, found, skipped);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  } else {
    const std::string reason = objection(path);
    if (reason == "binary") throw Error(Failure::input, "data.text: " + path + ": not text: it holds a NUL byte");
    if (!reason.empty()) refuse_not_utf8(path, reason);
    found.push_back(describe(path));
  }
  return found;
}

/// Whether every split pattern cuts between the two characters: "word| next" and "word|\n",
/// but "end.\n" may be one pretoken.
bool always_cut(char before, char after) {
  const auto is_alnum = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  if (after == '\n' || after == '\r') return is_alnum(before);
  return (after == ' ' || (after >= '\t' && after <= '\r')) && before > ' ' && before < '\x7f';
}

/// Where to end a block that has more text behind it: see the header. A block without such a boundary ends before the
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
  SkippedFiles ignored;
  return find_text(paths, ignored);
}

std::vector<TextFile> find_text(const std::vector<std::string>& paths, SkippedFiles& skipped) {
  std::vector<TextFile> files;
  std::set<std::string> seen;
  try {
    for (const auto& path : paths) {
      for (auto& file : find_below(path, skipped)) {
        if (seen.insert(fs::canonical(file.path).string()).second) files.push_back(std::move(file));
      }
    }
  } catch (const fs::filesystem_error& problem) {
    throw Error(Failure::input, "data.text: " + problem.path1().string() + ": " + problem.code().message());
  }
  std::sort(skipped.begin(), skipped.end());
  skipped.erase(std::unique(skipped.begin(), skipped.end()), skipped.end());
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

void TextReader::require_utf8(const TextBlock& block) const {
  const std::size_t good = utf8_prefix(block.text);
  if (good == block.text.size()) return;
  refuse_not_utf8(files_[next_file_ - 1].path, not_utf8(block.text, good, block.offset - file_begin_));
}

bool TextReader::next(TextBlock& block) {
  while (ahead_.empty() && !(file_ && fill()) && ahead_.empty()) {
    if (next_file_ == files_.size()) return false;
    file_.emplace(files_[next_file_].path, FileDescriptor::Use::read);
    file_offset_ = 0;
    file_begin_ = offset_;
    ++next_file_;
    starts_document_ = true;
  }
  const bool more = ahead_.size() > block_bytes_ || fill();
  const std::size_t end = more ? cut(std::string_view(ahead_).substr(0, block_bytes_ + 1)) : ahead_.size();
  block.text.assign(ahead_, 0, end);
  block.offset = offset_;
  block.starts_document = std::exchange(starts_document_, false);
  require_utf8(block);
  ahead_.erase(0, end);
  offset_ += static_cast<std::int64_t>(end);
  return true;
}

}  // namespace kozero::io
