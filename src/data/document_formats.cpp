// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// document_formats.cpp: the table of document formats, and the reader that goes through a corpus file by file.
#include "src/data/document_formats.hpp"
#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/text/byte_stream.hpp"
#include "src/data/json_files.hpp"

namespace kozero::data {
namespace {

/// A file and its beginning, decompressed, by which its format is recognized.
struct FileBeginning {
  const TextFile& file;
  std::string_view bytes;
  bool is_whole;                 ///< the file has no further bytes
  std::string_view compression;  ///< "gzip" or "zstd"; "" for a stored file
  JsonFile json{};
};

struct DocumentFormat {
  bool (*fits)(const FileBeginning&);
  /// Why the file, which fits, has no documents; empty if it may have some.
  Objection (*objection)(const FileBeginning&);
  std::unique_ptr<io::DocumentReader> (*open)(const TextFile&, std::int64_t block_bytes, CorpusPass&);
};

/// A format whose documents are no conversations.
Objection objection_to_chat(const std::string& format) {
  const std::string reason = format + ", not JSON lines of conversations (data.chat_template)";
  return {reason, reason};
}

Objection objection_to_text(const FileBeginning& begin) {
  if (!begin.compression.empty()) {
    const std::string reason = std::string(begin.compression) + ", but not of JSON lines";
    return {reason, reason + "; unpack it: " + (begin.compression == "gzip" ? "gunzip -k FILE" : "unzstd FILE")};
  }
  const auto objection = objection_to(begin.bytes, begin.is_whole);
  if (objection.reason.empty() && !begin.file.rules.chat_template.empty()) return objection_to_chat("text");
  const std::string& column = begin.file.rules.filter.column;
  if (!objection.reason.empty() || column.empty()) return objection;
  const std::string reason = "text without \"" + column + "\"";
  return {reason, reason + ": data.filter is for JSON lines and Parquet"};
}

io::Hash128 hash_of_file(const std::string& path) {
  io::RunningHash hash;
  std::vector<char> chunk(std::size_t{1} << 16);
  const auto stream = io::open_bytes(path);
  for (std::size_t got = stream->read(chunk); got > 0; got = stream->read(chunk)) hash.add({chunk.data(), got});
  return hash.value();
}

/// Null if the text is left out.
std::unique_ptr<io::DocumentReader> open_text(const TextFile& file, std::int64_t block_bytes, CorpusPass& pass) {
  if (pass.deduplicate && pass.is_duplicate(hash_of_file(file.path))) return nullptr;
  ++pass.counts.documents;
  return read_plain_text(file, block_bytes, pass.refuses_nul);
}

/// The first row that fits a file reads it. The last one fits every file.
constexpr std::array kDocumentFormats = {
    DocumentFormat{[](const FileBeginning& begin) { return begin.json.kind != JsonFile::Kind::none; },
                   [](const FileBeginning& begin) {
                     return begin.json.kind == JsonFile::Kind::other
                                ? begin.json.objection
                                : objection_to_json_lines(begin.file.path, begin.file.rules);
                   },
                   [](const TextFile& file, std::int64_t block_bytes, CorpusPass& pass) {
                     if (!is_named_json(file.path)) pass.counts.add_unnamed_json(file.path);
                     return read_records(open_json_lines(file.path, file.rules), file, block_bytes, pass);
                   }},
    DocumentFormat{[](const FileBeginning& begin) {
                     return begin.bytes.starts_with("PAR1") && !is_text(begin.bytes, begin.is_whole);
                   },
                   [](const FileBeginning& begin) {
                     if (!begin.file.rules.chat_template.empty()) return objection_to_chat("Parquet");
                     return objection_to_parquet(begin.file.path, begin.file.rules);
                   },
                   [](const TextFile& file, std::int64_t block_bytes, CorpusPass& pass) {
                     return read_records(open_parquet(file.path, file.rules), file, block_bytes, pass);
                   }},
    DocumentFormat{[](const FileBeginning& /*begin*/) { return true; }, objection_to_text, open_text},
};

/// Fills the front of `head` with the beginning of what a compressed file unpacks to; returns how many bytes. A damaged
/// file is an error only if its name promises documents.
std::size_t unpacked_beginning(const std::string& path, std::span<char> head) {
  std::size_t extent = 0;
  try {
    const auto stream = io::open_bytes(path);
    for (std::size_t got = 1; got > 0 && extent < head.size(); extent += got) got = stream->read(head.subspan(extent));
  } catch (const Error&) {
    if (is_named_json(path)) throw;
  }
  return extent;
}

/// Calls visit(file, row) with the row that reads the file.
template <class Visit>
auto with_format(const TextFile& file, const Visit& visit) {
  constexpr std::size_t kProbe = 8192;
  std::array<char, kProbe> head{};
  auto extent =
      static_cast<std::size_t>(io::FileDescriptor(file.path, io::FileDescriptor::Use::read).read_up_to(head, 0));
  const std::string_view compression = io::compression_of({head.data(), extent});
  if (!compression.empty()) extent = unpacked_beginning(file.path, head);
  FileBeginning begin{file, {head.data(), extent}, extent < kProbe, compression};
  begin.json = json_file(begin.bytes, begin.is_whole, file.path);
  return visit(begin, *std::ranges::find_if(kDocumentFormats, [&](const auto& row) { return row.fits(begin); }));
}

/// Null if the file is left out.
std::unique_ptr<io::DocumentReader> open_documents(const TextFile& file, std::int64_t block_bytes, CorpusPass& pass) {
  Objection objection;
  try {
    auto documents = with_format(file, [&](const FileBeginning& begin, const DocumentFormat& format) {
      objection = format.objection(begin);
      return objection.reason.empty() ? format.open(file, block_bytes, pass) : nullptr;
    });
    if (objection.reason.empty()) return documents;
  } catch (const Error& damage) {
    if (damage.failure() != Failure::input) throw;
    refuse_or_count(file, damage.what(), pass);
    return nullptr;
  }
  throw Error(Failure::input, file.key + ": " + file.path + ": " + objection.refusal);
}

class CorpusReader final : public io::DocumentReader {
 public:
  CorpusReader(const std::vector<TextFile>& files, std::int64_t block_bytes, CorpusPass* pass)
      : files_(files), block_bytes_(block_bytes), pass_(pass == nullptr ? own_pass_ : *pass) {}

  bool next(io::TextBlock& block) override {
    block.document.reset();
    while (documents_ == nullptr || !documents_->next(block)) {
      if (next_file_ == files_.size()) return false;
      if (next_file_ > 0) file_begin_ += files_[next_file_ - 1].bytes;
      documents_ = open_documents(files_[next_file_], block_bytes_, pass_);
      ++next_file_;
    }
    block.offset += file_begin_;
    block.file = next_file_ - 1;
    return true;
  }

 private:
  std::vector<TextFile> files_;
  std::int64_t block_bytes_;
  CorpusPass own_pass_;
  CorpusPass& pass_;
  std::size_t next_file_ = 0;
  std::int64_t file_begin_ = 0;  ///< of the open file in the corpus
  std::unique_ptr<io::DocumentReader> documents_;
};

}  // namespace

Objection objection_to_file(const TextFile& file) {
  return with_format(file,
                     [](const FileBeginning& begin, const DocumentFormat& format) { return format.objection(begin); });
}

std::unique_ptr<io::DocumentReader> FileCorpus::read(std::int64_t block_bytes, CorpusPass* pass) const {
  return std::make_unique<CorpusReader>(files_, block_bytes, pass);
}

}  // namespace kozero::data
