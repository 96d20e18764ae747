// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// text_source.hpp: a corpus: which files belong to it, and its text in blocks of bounded size.
//   data.text = ["docs", "src", "notes.txt"]  ->  files in a fixed order  ->  blocks
// A folder gives every text file below it in the order of their path's bytes. Left out and listed are: files that are
// not UTF-8 text by their first 8 KiB or hold one JSON object per line; links; folders of builds, runs and prepared
// tokens (known by the files in them). Left out and counted are: empty files, hidden names, node_modules and
// __pycache__. A file that is named itself must be text. A file reached twice counts once. Text that turns out not to
// be UTF-8 further on is refused when it is read. A block ends before an ASCII white space that follows a visible ASCII
// character (a line's end only after a letter or digit), wherever it has such a boundary: there the split patterns of
// byte-level BPE always cut, so tokens do not depend on the size of a block.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/posix/file.hpp"

namespace kozero::io {

struct TextFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  ///< of the file system's clock, for fingerprints
};

/// What folders hold besides text.
struct SkippedFiles {
  std::vector<std::string> named;  ///< "docs/logo.png (binary)"
  std::int64_t unnamed = 0;        ///< empty files, hidden names, node_modules and __pycache__
  bool operator==(const SkippedFiles&) const = default;
};

/// "skipped docs/logo.png (binary) and 2 hidden or empty"; "" if nothing was skipped.
std::string listed(const SkippedFiles& skipped);

/// The corpus's files, and in `skipped` what was left out of folders. Throws Error(input) naming a path that is
/// missing, unreadable or no text, with the format that its first bytes show and what to do, or when nothing is found.
std::vector<TextFile> find_text(const std::vector<std::string>& paths, SkippedFiles& skipped);
std::vector<TextFile> find_text(const std::vector<std::string>& paths);

/// The sum of the files' sizes.
std::int64_t total_bytes(const std::vector<TextFile>& files);

struct TextBlock {
  std::string text;
  std::int64_t offset = 0;       ///< of the block's first byte in the whole corpus
  bool starts_document = false;  ///< the first block of a file
};

/// Reads a corpus once, front to back, holding two blocks at most.
class TextReader {
 public:
  TextReader(std::vector<TextFile> files, std::int64_t block_bytes);
  /// Fills `block`, never with empty text; false at the end. Throws Error(input) where a file cannot be read, or is not
  /// UTF-8, naming the byte.
  bool next(TextBlock& block);

 private:
  bool fill();
  void require_utf8(const TextBlock& block) const;

  std::vector<TextFile> files_;
  std::size_t block_bytes_;
  std::size_t next_file_ = 0;
  std::optional<FileDescriptor> file_;
  std::int64_t file_offset_ = 0;
  bool starts_document_ = false;
  std::string ahead_;  ///< read, not yet handed out
  std::int64_t offset_ = 0;
  std::int64_t file_begin_ = 0;  ///< of the open file in the corpus
};

}  // namespace kozero::io
