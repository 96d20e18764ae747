// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
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

/// A format that is no text, known by bytes at a place, and how to make text of it.
struct Format {
  std::size_t offset;
  std::string_view bytes;
  const char* name;
  const char* remedy;
};

using namespace std::string_view_literals;

constexpr std::array<Format, 17> kFormats = {{
    {0, "PAR1"sv, "Parquet", "write its text column to a text file"},
    {0, "ARROW1\0\0"sv, "Arrow", "write its text column to a text file"},
    {0, "\x1F\x8B"sv, "gzip", "unpack it: gunzip -k FILE"},
    {0, "\x28\xB5\x2F\xFD"sv, "zstd", "unpack it: unzstd FILE"},
    {0, "\xFD\x37zXZ\0"sv, "xz", "unpack it: unxz -k FILE"},
    {4, "1AY&SY"sv, "bzip2", "unpack it: bunzip2 -k FILE"},
    {0, "PK\3\4"sv, "ZIP, as .docx, .epub and .pt files are", "unpack it: unzip FILE"},
    {257, "ustar"sv, "tar", "unpack it: tar -xf FILE"},
    {0, "%PDF-"sv, "PDF", "extract its text: pdftotext FILE"},
    {0, "\x89HDF\r\n\x1A\n"sv, "HDF5", "write its texts to a text file"},
    {0, "\x93NUMPY"sv, "NumPy array", "write its texts to a text file"},
    {8, "{\""sv, "safetensors weights", "weights are given as model.init"},
    {0, "\x88\xD8\x34\x01"sv, "token shard", "give it as data.tokens, with data.tokenizer"},
    {0, "\xA1\xD9\x34\x01"sv, "token shard", "give it as data.tokens, with data.tokenizer"},
    {0, "\xFF\xFE"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE >NEW"},
    {0, "\xFE\xFF"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE >NEW"},
    {0, "SQLite format 3\0"sv, "SQLite", "write its texts to a text file"},
}};

/// Why a file is no text: in a list of skipped files, and as the refusal of a file that is named; empty for text.
struct Objection {
  std::string reason;
  std::string refusal;
};

Objection not_text(const std::string& format, const std::string& remedy) {
  return {format, format + ", not text; accepted: UTF-8 text files; " + remedy};
}

/// Of bytes that are not UTF-8 from `at` on, in a file or its beginning.
Objection not_utf8(std::string_view bytes, std::size_t at, std::int64_t offset) {
  const std::string reason = fmt::format("not UTF-8: byte {} is 0x{:02X}", offset + static_cast<std::int64_t>(at),
                                         static_cast<unsigned char>(bytes[at]));
  return {reason, reason + "; convert it, for example: iconv -f LATIN1 -t UTF-8 FILE >NEW"};
}

/// Whether a file has a JSON object on each line: by its first line, and the next one or the file's name.
bool is_json_lines(std::string_view head, const fs::path& path) {
  if (!head.starts_with('{')) return false;
  const bool has_name = path.extension() == ".jsonl" || path.extension() == ".ndjson";
  const std::size_t end = head.find('\n');
  if (end == std::string_view::npos) return has_name;
  const std::string_view next = head.substr(std::min(head.find_first_not_of("\r\n", end), head.size()));
  return nlohmann::json::accept(head.substr(0, end)) && (has_name || next.starts_with('{'));
}

/// Whether a file begins like a JSON array of objects, as data sets of instructions do: `[`, then `{` and a key.
bool is_json_array(std::string_view head) {
  constexpr std::string_view kSpace = " \t\r\n";
  for (const std::string_view next : {"["sv, "{"sv, "\""sv}) {
    head.remove_prefix(std::min(head.find_first_not_of(kSpace), head.size()));
    if (!head.starts_with(next)) return false;
    head.remove_prefix(1);
  }
  return true;
}

/// The keys of the first object in `line`, "messages, source"; "" if it is not whole.
std::string keys_of(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  std::vector<std::string> keys;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) keys.push_back(key);
  }
  return keys.empty() ? "" : fmt::format("; its keys: {}", fmt::join(keys, ", "));
}

/// The format that a file's first bytes show, or nullptr.
const Format* format_of(std::string_view head) {
  const auto fits = [&](const Format& format) {
    return head.size() > format.offset && head.substr(format.offset).starts_with(format.bytes);
  };
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), fits);
  return found == kFormats.end() ? nullptr : &*found;
}

/// By the first bytes of a file. A PDF may begin like text; the other formats do not.
Objection objection(const std::string& path) {
  std::array<char, kBinaryProbe> head{};
  const auto extent = static_cast<std::size_t>(FileDescriptor(path, FileDescriptor::Use::read).read_up_to(head, 0));
  const std::string_view bytes(head.data(), extent);
  const std::size_t good = utf8_prefix(bytes);
  const bool may_be_cut = extent == kBinaryProbe && extent - good < 4;
  const bool is_utf8 = bytes.find('\0') == std::string_view::npos && (good == extent || may_be_cut);
  if (is_utf8 && is_json_lines(bytes, path)) {
    return not_text("JSON objects, one per line", "write their texts to one, for example: jq -r .text FILE >NEW" +
                                                      keys_of(bytes.substr(0, bytes.find('\n'))));
  }
  if (is_utf8 && is_json_array(bytes)) {
    return not_text("a JSON array of objects", "write their texts to one, for example: jq -r '.[].text' FILE >NEW");
  }
  const Format* format = format_of(bytes);
  if (format != nullptr && (!is_utf8 || bytes.starts_with("%PDF-"))) return not_text(format->name, format->remedy);
  if (bytes.find('\0') != std::string_view::npos)
    return {"binary", "not text: it holds a NUL byte; accepted: UTF-8 text files"};
  return is_utf8 ? Objection() : not_utf8(bytes, good, 0);
}

TextFile describe(const fs::path& path) {
  return TextFile{path.generic_string(), static_cast<std::int64_t>(fs::file_size(path)),
                  static_cast<std::int64_t>(fs::last_write_time(path).time_since_epoch().count())};
}

/// Appends the text files below `folder`, unsorted.
void collect(const fs::path& folder, std::vector<TextFile>& found, SkippedFiles& skipped) {
  const auto skip = [&](const fs::path& path, const std::string& why) {
    skipped.named.push_back(path.generic_string() + " (" + why + ")");
  };
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    const bool is_ignored = is_ignored_name(path.filename().string());
    const bool is_empty = !is_ignored && !entry->is_symlink() && entry->is_regular_file() && entry->file_size() == 0;
    if (is_ignored || is_empty) ++skipped.unnamed;
    if (entry->is_symlink()) {
      if (!is_ignored) skip(path, "a link");
    } else if (entry->is_directory()) {
      const bool is_made = !is_ignored && is_made_folder(path);
      if (is_made) skip(path, "a build, run or token folder");
      if (is_made || is_ignored) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !is_ignored && !is_empty) {
      const std::string reason = objection(path.string()).reason;
      if (reason.empty()) found.push_back(describe(path));
      if (!reason.empty()) skip(path, reason);
    }
  }
}

[[noreturn]] void refuse(const std::string& path, const Objection& objection) {
  throw Error(Failure::input, "data.text: " + path + ": " + objection.refusal);
}

std::vector<TextFile> find_below(const std::string& path, SkippedFiles& skipped) {
  if (!fs::exists(path)) throw Error(Failure::input, "data.text: " + path + ": no such file or folder");
  std::vector<TextFile> found;
  if (fs::is_directory(path)) {
    collect(path, found, skipped);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  } else {
    if (const Objection found_wrong = objection(path); !found_wrong.reason.empty()) refuse(path, found_wrong);
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

std::string listed(const SkippedFiles& skipped) {
  constexpr std::size_t kMostNamed = 5;
  const auto& named = skipped.named;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(kMostNamed, named.size()); ++i) parts.push_back(on_one_line(named[i]));
  if (named.size() > kMostNamed) parts.push_back(fmt::format("{} more", named.size() - kMostNamed));
  if (skipped.unnamed > 0) parts.push_back(fmt::format("{} hidden or empty", skipped.unnamed));
  return parts.empty() ? "" : fmt::format("skipped {}", fmt::join(parts, ", "));
}

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
  auto& named = skipped.named;
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  if (total_bytes(files) == 0) {
    const std::string others = listed(skipped);
    throw Error(Failure::input,
                "data.text: no text in the files and folders given" + (others.empty() ? "" : "; " + others));
  }
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
  refuse(files_[next_file_ - 1].path, not_utf8(block.text, good, block.offset - file_begin_));
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
