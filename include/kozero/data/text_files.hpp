// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_files.hpp: which files belong to a corpus.
//   data.text = ["docs", "src", "notes.txt"]  ->  files in a fixed order
// A folder stands for every text file below it, in the order of the paths' bytes. Left out and listed are: files that
// are not UTF-8 text by their first 8 KiB or hold one JSON object per line; links; folders of builds, runs, sweeps and
// prepared tokens (known by the files in them). Left out and counted are: empty files, hidden names, node_modules and
// __pycache__. A file that is given itself must be text. A file reached twice counts once. Text that turns out not to
// be UTF-8 further on is refused when it is read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kozero::data {

struct TextFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t modified = 0;      ///< of the file system's clock, for fingerprints
  std::size_t source = 0;         ///< the number of its TextSource
  std::string key = "data.text";  ///< the deck's key that gives its TextSource
};

/// The files and folders of one source, and the deck's key that gives them.
struct TextSource {
  std::vector<std::string> paths;
  std::string key = "data.text";
};

/// What folders contain besides text.
struct SkippedFiles {
  std::vector<std::string> named;  ///< "docs/logo.png (binary)"
  std::int64_t unnamed = 0;        ///< empty files, hidden names, node_modules and __pycache__
  bool operator==(const SkippedFiles&) const = default;
};

/// "skipped docs/logo.png (binary) and 2 hidden or empty"; "" if nothing was skipped.
std::string listed(const SkippedFiles& skipped);

/// The corpus's files, and in `skipped` what was left out of folders. Throws Error(input) naming a path that is
/// missing, unreadable or not text, with the format that its first bytes show and what to do, or if nothing is found.
std::vector<TextFile> find_text(const std::vector<std::string>& paths, SkippedFiles& skipped);
/// The same for several sources, in their order. A file belongs to the first source that has it.
std::vector<TextFile> find_text(const std::vector<TextSource>& sources, SkippedFiles& skipped);
std::vector<TextFile> find_text(const std::vector<std::string>& paths);

/// The sum of the files' sizes.
std::int64_t total_bytes(const std::vector<TextFile>& files);

}  // namespace kozero::data
