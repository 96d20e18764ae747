// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// records.cpp: documents of records: what is left out, and where a document is cut into blocks.
#include "src/data/records.hpp"
#include <algorithm>
#include <utility>

#include <kozero/core/error.hpp>

namespace kozero::data {
namespace {

/// Whether every split pattern cuts between the two characters: "word| next" and "word|\n",
/// but "end.\n" may be one pretoken.
bool always_cut(char before, char after) {
  const auto is_alnum = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  if (after == '\n' || after == '\r') return is_alnum(before);
  return (after == ' ' || (after >= '\t' && after <= '\r')) && before > ' ' && before < '\x7f';
}

/// Conversations are equal if their texts and their parts are.
io::Hash128 hash_of(const std::string& text, const std::vector<io::TextPart>& parts) {
  if (parts.empty()) return io::xxh3_128_of(text);
  std::string all = text;
  for (const auto& part : parts) {
    all += std::to_string(part.end) + (part.is_special ? 's' : 'o') + (part.is_trained ? 't' : 'u');
  }
  return io::xxh3_128_of(all);
}

class RecordReader final : public io::DocumentReader {
 public:
  RecordReader(std::unique_ptr<RecordFile> records, const TextFile& file, std::int64_t block_bytes, CorpusPass& pass)
      : records_(std::move(records)), file_(file), block_bytes_(static_cast<std::size_t>(block_bytes)), pass_(pass) {}

  bool next(io::TextBlock& block) override {
    const bool starts_document = done_ == text_.size();
    if (starts_document && !next_document()) return false;
    const std::string_view rest = std::string_view(text_).substr(done_);
    const bool is_whole = rest.size() <= block_bytes_ || !parts_.empty();
    const std::size_t extent = is_whole ? rest.size() : block_end(rest, block_bytes_);
    block.text.assign(rest, 0, extent);
    block.offset = std::min(records_->taken(), file_.bytes - 1);
    block.starts_document = starts_document;
    block.document = hash_.high;
    block.parts = parts_;
    done_ += extent;
    return true;
  }

 private:
  bool next_document() {
    done_ = 0;
    while (!is_damaged_) {
      text_.clear();
      try {
        const auto next = records_->next(text_);
        if (next == RecordFile::Next::end) return false;
        if (next == RecordFile::Next::filtered) {
          ++pass_.counts.filtered;
          continue;
        }
        if (pass_.refuses_nul && text_.find('\0') != std::string::npos) {
          throw BadRecord("row " + std::to_string(records_->row()) + ": the text has " + kRefusedNul);
        }
      } catch (const BadRecord& bad) {
        text_.clear();
        refuse_or_count(file_, file_.path + ": " + bad.what(), pass_);
        continue;
      } catch (const Error& damage) {
        text_.clear();
        if (damage.failure() != Failure::input) throw;
        is_damaged_ = true;
        refuse_or_count(file_, damage.what(), pass_);
        break;
      }
      if (text_.empty()) {
        ++pass_.counts.empty;
        continue;
      }
      parts_ = records_->take_parts();
      hash_ = hash_of(text_, parts_);
      if (pass_.is_duplicate(hash_)) continue;
      ++pass_.counts.documents;
      return true;
    }
    return false;
  }

  std::unique_ptr<RecordFile> records_;
  TextFile file_;
  std::size_t block_bytes_;
  CorpusPass& pass_;
  std::string text_;  ///< of the current document
  std::vector<io::TextPart> parts_;
  io::Hash128 hash_;
  std::size_t done_ = 0;     ///< bytes of the document that were handed out
  bool is_damaged_ = false;  ///< nothing further of the file can be read
};

}  // namespace

bool CorpusPass::is_duplicate(const io::Hash128& document) {
  if (!deduplicate || seen.insert(document).second) return false;
  ++counts.duplicates;
  return true;
}

void refuse_or_count(const TextFile& file, const std::string& place, CorpusPass& pass) {
  if (!file.rules.skip_bad) {
    throw Error(Failure::input, file.key + ": " + place +
                                    "; to leave such records out: data.on_bad_document=skip (prepare: --skip-bad)");
  }
  pass.counts.add_bad(place);
}

std::size_t block_end(std::string_view text, std::size_t most) {
  for (std::size_t end = most; end > 0; --end) {
    if (always_cut(text[end - 1], text[end])) return end;
  }
  std::size_t end = most;
  while (end > 1 && most + 1 - end < 4 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::max<std::size_t>(end, 1);
}

std::unique_ptr<io::DocumentReader> read_records(std::unique_ptr<RecordFile> records, const TextFile& file,
                                                 std::int64_t block_bytes, CorpusPass& pass) {
  return std::make_unique<RecordReader>(std::move(records), file, block_bytes, pass);
}

}  // namespace kozero::data
