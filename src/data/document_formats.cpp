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

namespace kozero::data {
namespace {

/// A file and its beginning, by which its format is recognized.
struct FileBeginning {
  const std::string& path;
  std::string_view bytes;
  bool is_whole;  ///< the file has no further bytes
};

struct DocumentFormat {
  bool (*fits)(const FileBeginning&);
  std::unique_ptr<io::DocumentReader> (*open)(const TextFile& file, std::int64_t block_bytes);
};

Objection objection_of_text(const FileBeginning& file) { return objection_to(file.bytes, file.is_whole, file.path); }

/// The first row that fits a file reads it.
constexpr std::array kDocumentFormats = {
    DocumentFormat{[](const FileBeginning& file) { return objection_of_text(file).reason.empty(); }, read_plain_text},
};

/// Calls visit(file, row) with the row that reads the file, or with nullptr.
template <class Visit>
auto with_format(const std::string& path, const Visit& visit) {
  constexpr std::size_t kProbe = 8192;
  std::array<char, kProbe> head{};
  const auto extent =
      static_cast<std::size_t>(io::FileDescriptor(path, io::FileDescriptor::Use::read).read_up_to(head, 0));
  const FileBeginning file{path, {head.data(), extent}, extent < kProbe};
  const auto fits = [&](const DocumentFormat& format) { return format.fits(file); };
  const auto* const row = std::find_if(kDocumentFormats.begin(), kDocumentFormats.end(), fits);
  return visit(file, row == kDocumentFormats.end() ? nullptr : row);
}

std::unique_ptr<io::DocumentReader> open_documents(const TextFile& file, std::int64_t block_bytes) {
  return with_format(file.path, [&](const FileBeginning& begin, const DocumentFormat* format) {
    if (format == nullptr) {
      throw Error(Failure::input, file.key + ": " + file.path + ": " + objection_of_text(begin).refusal);
    }
    return format->open(file, block_bytes);
  });
}

class CorpusReader final : public io::DocumentReader {
 public:
  CorpusReader(const std::vector<TextFile>& files, std::int64_t block_bytes)
      : files_(files), block_bytes_(block_bytes) {}

  bool next(io::TextBlock& block) override {
    while (documents_ == nullptr || !documents_->next(block)) {
      if (next_file_ == files_.size()) return false;
      if (next_file_ > 0) file_begin_ += files_[next_file_ - 1].bytes;
      documents_ = open_documents(files_[next_file_], block_bytes_);
      ++next_file_;
    }
    block.offset += file_begin_;
    return true;
  }

 private:
  std::vector<TextFile> files_;
  std::int64_t block_bytes_;
  std::size_t next_file_ = 0;
  std::int64_t file_begin_ = 0;  ///< of the open file in the corpus
  std::unique_ptr<io::DocumentReader> documents_;
};

}  // namespace

Objection objection_to_file(const std::string& path) {
  return with_format(path, [](const FileBeginning& file, const DocumentFormat* format) {
    return format == nullptr ? objection_of_text(file) : Objection();
  });
}

std::unique_ptr<io::DocumentReader> FileCorpus::read(std::int64_t block_bytes) const {
  return std::make_unique<CorpusReader>(files_, block_bytes);
}

}  // namespace kozero::data
