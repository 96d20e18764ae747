// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// document_formats.hpp: the formats of files that contain documents, and a corpus of such files.
//   a file's first bytes -> its row of the table -> a DocumentReader of the file -> blocks of the whole corpus
// A new format is a source with its RecordFile (records.hpp) and a row of the table in document_formats.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kozero/data/text_files.hpp>
#include "io/text/document_reader.hpp"
#include "src/data/not_text.hpp"
#include "src/data/records.hpp"

namespace kozero::data {

/// A reader of a UTF-8 text file as one document, in blocks of at most `block_bytes` >= 8 bytes. It holds two blocks at
/// most. Throws Error(input) if a byte is not UTF-8, or with `refuses_nul` if one is NUL.
std::unique_ptr<io::DocumentReader> read_plain_text(const TextFile& file, std::int64_t block_bytes,
                                                    bool refuses_nul = false);

/// Why the file has no documents; empty if it may have some. Throws Error(input), "PATH: REASON", if it cannot be read
/// or is damaged where its format shows.
Objection objection_to_file(const TextFile& file);

/// The documents of the files, in their order. A plain text file is one document, other formats have one per record.
class FileCorpus final : public io::Corpus {
 public:
  explicit FileCorpus(std::vector<TextFile> files) : files_(std::move(files)) {}
  [[nodiscard]] std::int64_t bytes() const override { return total_bytes(files_); }
  [[nodiscard]] std::unique_ptr<io::DocumentReader> read(std::int64_t block_bytes) const override {
    return read(block_bytes, nullptr);
  }
  /// The same for a pass that leaves out duplicates or wants counts; `pass` outlives the reader.
  [[nodiscard]] std::unique_ptr<io::DocumentReader> read(std::int64_t block_bytes, CorpusPass* pass) const;

 private:
  std::vector<TextFile> files_;
};

}  // namespace kozero::data
