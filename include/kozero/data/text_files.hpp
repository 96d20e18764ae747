// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_files.hpp: which files belong to a corpus, and which of their records are documents.
//   data.text = ["docs", "src", "notes.txt"]  ->  files in a fixed order
// A folder stands for every file of documents below it, in the order of the paths' bytes: UTF-8 text, JSON lines and
// Parquet with the text's column. Left out and listed are: files that are none of these by their beginning; links;
// folders of builds, runs, sweeps and prepared tokens (known by the files in them). Left out and counted are: empty
// files, hidden names, node_modules and __pycache__. A path with *, ? or [ stands for the files and folders that it
// matches (glob(7)). A file that is given itself must have documents. A file reached twice counts once. What turns out
// to be damaged further on is refused when it is read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/data/document_rules.hpp>

namespace kozero::data {

struct TextFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t modified = 0;      ///< of the file system's clock, for fingerprints
  std::size_t source = 0;         ///< the number of its TextSource
  std::string key = "data.text";  ///< the deck's key that gives its TextSource
  DocumentRules rules = {};       ///< of its TextSource
};

/// The files and folders of one source, and the deck's key that gives them.
struct TextSource {
  std::vector<std::string> paths;
  std::string key = "data.text";
  DocumentRules rules = {};
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
/// missing, unreadable or without documents, with the format that its first bytes show and what to do, or if nothing is
/// found.
std::vector<TextFile> find_text(const std::vector<std::string>& paths, SkippedFiles& skipped);
/// The same for several sources, in their order. A file belongs to the first source that has it.
std::vector<TextFile> find_text(const std::vector<TextSource>& sources, SkippedFiles& skipped);
std::vector<TextFile> find_text(const std::vector<std::string>& paths);

/// The sum of the files' sizes.
std::int64_t total_bytes(const std::vector<TextFile>& files);

}  // namespace kozero::data
