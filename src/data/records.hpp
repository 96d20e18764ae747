// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// records.hpp: files of many documents, each the text of a record, and their documents as a stream of blocks.
//   RecordFile (one per format): texts of records, in the file's order -> read_records: blocks of a DocumentReader
// A record's text is whole in memory, so it has a limit; a file's other records are not.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <kozero/data/document_rules.hpp>
#include <kozero/data/text_files.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/text/document_reader.hpp"
#include "src/data/not_text.hpp"

namespace kozero::data {

/// The most bytes of a record; a longer one is no document.
inline constexpr std::int64_t kMostRecordBytes = std::int64_t{64} << 20;

/// A record that is no document: "row 7: no field \"text\"". The records behind it can be read.
class BadRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The records of a file, front to back.
class RecordFile {
 public:
  enum class Next { document, filtered, end };

  virtual ~RecordFile() = default;
  /// Puts the next record's text into `text`. Throws BadRecord, or Error(input), "PATH: REASON", if nothing further can
  /// be read.
  virtual Next next(std::string& text) = 0;
  /// The parts of the text that next() gave; empty for text that is no conversation.
  [[nodiscard]] virtual std::vector<io::TextPart> take_parts() { return {}; }
  /// The number of the record that next() gave last, from 1.
  [[nodiscard]] virtual std::int64_t row() const = 0;
  /// Bytes of the file, as it is stored, that were read so far.
  [[nodiscard]] virtual std::int64_t taken() const = 0;
};

/// What a pass over a corpus has met.
struct CorpusPass {
  bool deduplicate = false;
  bool refuses_nul = false;  ///< the tokenizer's end-of-text token is the byte 0, so that a text must not have it
  DocumentCounts counts;
  std::unordered_set<io::Hash128> seen;  ///< documents, if duplicates are left out: 48 bytes each

  /// Whether an equal document was met before in this pass.
  bool is_duplicate(const io::Hash128& document);
};

/// Counts a record, or the unreadable rest of a file, as left out. Throws Error(input) with the place unless the file's
/// rules leave such out.
void refuse_or_count(const TextFile& file, const std::string& place, CorpusPass& pass);

/// The documents of a file of records, in blocks of at most `block_bytes`. `pass` outlives it.
std::unique_ptr<io::DocumentReader> read_records(std::unique_ptr<RecordFile> records, const TextFile& file,
                                                 std::int64_t block_bytes, CorpusPass& pass);

/// Where a block of at most `most` bytes at the front of a longer text ends: see io/text/document_reader.hpp. Without
/// such a boundary it ends before a character's first byte.
std::size_t block_end(std::string_view text, std::size_t most);

/// The refusal of a text with a NUL where CorpusPass::refuses_nul forbids it.
inline constexpr const char* kRefusedNul = "a NUL, which is the end-of-text token of data.tokenizer = \"bytes\"";

// JSON lines: a JSON object on each line (RFC 8259), stored or compressed by gzip or zstd.
std::unique_ptr<RecordFile> open_json_lines(const std::string& path, const DocumentRules& rules);

// Parquet: a column of texts, row group by row group. Read by Arrow, if the program was built with it.
std::unique_ptr<RecordFile> open_parquet(const std::string& path, const DocumentRules& rules);

/// Why the file's first record is no document because of a field or column that all records lack; empty if it is one.
Objection objection_to_json_lines(const std::string& path, const DocumentRules& rules);
Objection objection_to_parquet(const std::string& path, const DocumentRules& rules);

}  // namespace kozero::data
