// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plain_text.cpp: the blocks of a text file: where each block ends, and the check that it is UTF-8.
#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "src/data/document_formats.hpp"
#include "src/data/not_text.hpp"
#include "src/data/records.hpp"

namespace kozero::data {
namespace {

class PlainTextReader final : public io::DocumentReader {
 public:
  PlainTextReader(const TextFile& file, std::int64_t block_bytes, bool refuses_nul)
      : refuses_nul_(refuses_nul),
        path_(file.path),
        key_(file.key),
        block_bytes_(static_cast<std::size_t>(block_bytes)),
        file_(path_, io::FileDescriptor::Use::read) {
    require(block_bytes >= 8, "PlainTextReader: block of " + std::to_string(block_bytes) + " bytes");
  }

  bool next(io::TextBlock& block) override {
    const bool more = ahead_.size() > block_bytes_ || fill();
    if (ahead_.empty()) return false;
    const std::size_t end = more ? block_end(ahead_, block_bytes_) : ahead_.size();
    block.text.assign(ahead_, 0, end);
    block.offset = offset_;
    block.starts_document = offset_ == 0;
    require_text(block);
    ahead_.erase(0, end);
    offset_ += static_cast<std::int64_t>(end);
    return true;
  }

 private:
  /// Reads until more than a block is at hand; false if the file ends before.
  bool fill() {
    const std::size_t held = ahead_.size();
    ahead_.resize(block_bytes_ + 1);
    const std::int64_t got =
        file_.read_up_to(std::span(ahead_).subspan(held), offset_ + static_cast<std::int64_t>(held));
    ahead_.resize(held + static_cast<std::size_t>(got));
    return ahead_.size() > block_bytes_;
  }

  void require_text(const io::TextBlock& block) const {
    const std::size_t nul = refuses_nul_ ? block.text.find('\0') : std::string::npos;
    if (nul != std::string::npos) {
      throw Error(Failure::input, key_ + ": " + path_ + ": byte " +
                                      std::to_string(block.offset + static_cast<std::int64_t>(nul)) + " is " +
                                      kRefusedNul + "; remove it: tr -d '\\000' <FILE >NEW");
    }
    const std::size_t good = io::utf8_prefix(block.text);
    if (good == block.text.size()) return;
    throw Error(Failure::input, key_ + ": " + path_ + ": " + not_utf8(block.text, good, block.offset).refusal);
  }

  bool refuses_nul_;
  std::string path_;
  std::string key_;
  std::size_t block_bytes_;
  io::FileDescriptor file_;
  std::int64_t offset_ = 0;  ///< of the next block
  std::string ahead_;        ///< read, not yet handed out
};

}  // namespace

std::unique_ptr<io::DocumentReader> read_plain_text(const TextFile& file, std::int64_t block_bytes, bool refuses_nul) {
  return std::make_unique<PlainTextReader>(file, block_bytes, refuses_nul);
}

}  // namespace kozero::data
