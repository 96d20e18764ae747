// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_files.cpp: finds the files of a corpus, and lists what was left out.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/text_files.hpp>
#include "io/deck/matrix_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "src/data/document_formats.hpp"

namespace kozero::data {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kIgnoredNames = {"node_modules", "__pycache__"};
constexpr std::array<std::string_view, 4> kMadeBy = {"CMakeCache.txt", io::kMetricsFile, io::kSweepFile,
                                                     kTokensDescription};

bool is_ignored_name(const std::string& name) {
  return name.starts_with('.') || std::find(kIgnoredNames.begin(), kIgnoredNames.end(), name) != kIgnoredNames.end();
}

bool is_made_folder(const fs::path& folder) {
  return std::any_of(kMadeBy.begin(), kMadeBy.end(), [&](std::string_view marker) {
    std::error_code ignored;
    return fs::exists(folder / marker, ignored);
  });
}

TextFile describe(const fs::path& path, const TextSource& source) {
  TextFile file;
  file.path = path.generic_string();
  file.bytes = static_cast<std::int64_t>(fs::file_size(path));
  file.modified = static_cast<std::int64_t>(fs::last_write_time(path).time_since_epoch().count());
  file.key = source.key;
  file.rules = source.rules;
  return file;
}

/// Why the file is left out; empty if it has documents, or if it is damaged and its damage is counted where it is read.
Objection objection_to_documents(const TextFile& file) {
  try {
    return objection_to_file(file);
  } catch (const Error& damage) {
    if (damage.failure() != Failure::input || file.rules.skip_bad) return {};
    throw Error(Failure::input, file.key + ": " + damage.what());
  }
}

/// Appends the text files below `folder`, unsorted.
void collect(const fs::path& folder, const TextSource& source, std::vector<TextFile>& found, SkippedFiles& skipped) {
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
      TextFile file = describe(path, source);
      const std::string reason = objection_to_documents(file).reason;
      if (reason.empty()) found.push_back(std::move(file));
      if (!reason.empty()) skip(path, reason);
    }
  }
}

[[noreturn]] void refuse(const std::string& key, const std::string& path, const std::string& why) {
  throw Error(Failure::input, key + ": " + path + ": " + why);
}

std::vector<TextFile> find_below(const std::string& path, const TextSource& source, SkippedFiles& skipped) {
  std::vector<TextFile> found;
  if (fs::is_directory(path)) {
    collect(path, source, found, skipped);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  } else {
    static_cast<void>(io::FileDescriptor(path, io::FileDescriptor::Use::read));  // refuses what is no regular file
    found.push_back(describe(path, source));
    if (const Objection wrong = objection_to_documents(found.back()); !wrong.reason.empty()) {
      refuse(source.key, path, wrong.refusal);
    }
  }
  return found;
}

/// The path itself if it exists, else what its pattern matches, in the order of the paths' bytes.
std::vector<std::string> matches_of(const std::string& path, const std::string& key) {
  if (fs::exists(path)) return {path};
  if (path.find_first_of("*?[") == std::string::npos) refuse(key, path, "no such file or folder");
  glob_t matches{};
  const int problem = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (problem != 0 || paths.empty()) refuse(key, path, "no such file or folder, and none that matches");
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The source's files that are not in `seen`, which they are added to.
std::vector<TextFile> find_source(const TextSource& source, std::set<std::string>& seen, SkippedFiles& skipped) {
  std::vector<TextFile> files;
  try {
    for (const auto& pattern : source.paths) {
      for (const auto& path : matches_of(pattern, source.key)) {
        for (auto& file : find_below(path, source, skipped)) {
          if (seen.insert(fs::canonical(file.path).string()).second) files.push_back(std::move(file));
        }
      }
    }
  } catch (const fs::filesystem_error& problem) {
    refuse(source.key, problem.path1().string(), problem.code().message());
  }
  return files;
}

void sort_names(SkippedFiles& skipped) {
  auto& named = skipped.named;
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
}

[[noreturn]] void refuse_empty(const std::string& key, std::size_t number, SkippedFiles& skipped) {
  sort_names(skipped);
  const std::string others = listed(skipped);
  throw Error(Failure::input, key + ": no text in the files and folders given" +
                                  (number == 0 ? "" : " that no earlier source has") +
                                  (others.empty() ? "" : "; " + others));
}

}  // namespace

std::string listed(const SkippedFiles& skipped) {
  constexpr std::size_t kMostNamed = 5;
  const auto& named = skipped.named;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(kMostNamed, named.size()); ++i) parts.push_back(io::on_one_line(named[i]));
  if (named.size() > kMostNamed) parts.push_back(fmt::format("{} more", named.size() - kMostNamed));
  if (skipped.unnamed > 0) parts.push_back(fmt::format("{} hidden or empty", skipped.unnamed));
  return parts.empty() ? "" : fmt::format("skipped {}", fmt::join(parts, ", "));
}

std::vector<TextFile> find_text(const std::vector<std::string>& paths) {
  SkippedFiles ignored;
  return find_text(paths, ignored);
}

std::vector<TextFile> find_text(const std::vector<std::string>& paths, SkippedFiles& skipped) {
  return find_text(std::vector{TextSource{paths}}, skipped);
}

std::vector<TextFile> find_text(const std::vector<TextSource>& sources, SkippedFiles& skipped) {
  std::vector<TextFile> files;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto found = find_source(sources[i], seen, skipped);
    if (total_bytes(found) == 0) refuse_empty(sources[i].key, i, skipped);
    for (auto& file : found) {
      file.source = i;
      files.push_back(std::move(file));
    }
  }
  sort_names(skipped);
  return files;
}

std::int64_t total_bytes(const std::vector<TextFile>& files) {
  std::int64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  return sum;
}

}  // namespace kozero::data
