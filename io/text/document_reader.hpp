// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// document_reader.hpp: documents as a stream of text blocks of bounded size, and a corpus that can be read repeatedly.
// A block ends before an ASCII white space that follows a visible ASCII character (a line's end only after a letter or
// digit), wherever it has such a boundary: there the split patterns of byte-level BPE always cut, so tokens do not
// depend on the size of a block.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kozero::io {

/// A part of a conversation's text, from the end of the part before.
struct TextPart {
  std::size_t end = 0;
  /// The name of a special token, which is one id; without text it is the end-of-text token. Other text never becomes
  /// a special token.
  bool is_special = false;
  bool is_trained = false;  ///< of an answer
};

struct TextBlock {
  std::string text;
  std::int64_t offset = 0;       ///< of the block's first byte in the whole file or corpus
  bool starts_document = false;  ///< the first block of a document
  /// A hash of the whole document, if its file has many documents. A file that is one document has none.
  std::optional<std::uint64_t> document;
  std::size_t file = 0;  ///< the document's file, by its number in the corpus
  /// Of a conversation, which is one block of any size; empty for other documents.
  std::vector<TextPart> parts;
};

/// Reads documents once, front to back.
class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  /// Fills `block` with the next text of the current document, or with the beginning of the next document; never with
  /// empty text. False at the end. Throws Error(input) if a document cannot be read or is not UTF-8, naming the byte.
  virtual bool next(TextBlock& block) = 0;
};

class Corpus {
 public:
  virtual ~Corpus() = default;
  /// The size of its files.
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
  /// A reader at its beginning, whose blocks have at most `block_bytes` bytes.
  [[nodiscard]] virtual std::unique_ptr<DocumentReader> read(std::int64_t block_bytes) const = 0;
};

}  // namespace kozero::io
