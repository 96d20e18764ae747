// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.cpp: tokenizes a corpus and divides it into training and validation shards.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include <kozero/core/error.hpp>
#include <kozero/data/prepare.hpp>
#include <kozero/data/token_shard.hpp>
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "io/text/tokenizer.hpp"
#include "src/data/document_formats.hpp"

namespace kozero::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokensPerShard = 100'000'000;  // as llm.c's
constexpr std::int64_t kStretchBytes = std::int64_t{64} << 10;
constexpr std::int64_t kMinBlockBytes = 256;

/// The shards of one side: train_000000.bin, train_000001.bin ...
class SplitWriter {
 public:
  SplitWriter(std::string folder, std::string side, std::int64_t vocab)
      : folder_(std::move(folder)), side_(std::move(side)), vocab_(vocab) {}

  void append(std::span<const Token> tokens) {
    while (!tokens.empty()) {
      if (!shard_) open();
      const auto room = static_cast<std::size_t>(kTokensPerShard - shard_->num_tokens());
      const auto here = tokens.first(std::min(tokens.size(), room));
      shard_->append(here);
      split_.tokens += static_cast<std::int64_t>(here.size());
      tokens = tokens.subspan(here.size());
      if (shard_->num_tokens() == kTokensPerShard) close();
    }
  }
  void count_bytes(std::size_t bytes) { split_.bytes += static_cast<std::int64_t>(bytes); }

  /// The next token begins a new shard, the first of a further source.
  void begin_source() {
    if (shard_) close();
    sources_.push_back(since_last_source());
  }

  TokenSplit finish() {
    if (shard_) close();
    return split_;
  }

  /// What each source has, after finish().
  [[nodiscard]] std::vector<TokenSplit> finished_sources() const {
    auto all = sources_;
    all.push_back(since_last_source());
    return all;
  }

 private:
  void open() {
    std::string number = std::to_string(split_.files.size());
    number.insert(0, 6 - std::min<std::size_t>(number.size(), 6), '0');
    split_.files.push_back((fs::path(folder_) / (side_ + "_" + number + ".bin")).string());
    shard_ = std::make_unique<TokenShardWriter>(split_.files.back(), vocab_);
  }
  void close() {
    shard_->close();
    shard_.reset();
  }
  [[nodiscard]] TokenSplit since_last_source() const {
    TokenSplit rest = split_;
    for (const auto& source : sources_) {
      rest.files.erase(rest.files.begin(), rest.files.begin() + std::ssize(source.files));
      rest.tokens -= source.tokens;
      rest.bytes -= source.bytes;
    }
    return rest;
  }

  std::string folder_, side_;
  std::int64_t vocab_;
  std::unique_ptr<TokenShardWriter> shard_;
  TokenSplit split_;
  std::vector<TokenSplit> sources_;  ///< finished ones
};

/// Which bytes of the corpus are for validation.
class Stretches {
 public:
  Stretches(std::int64_t total, double fraction) : total_(total), fraction_(fraction) {
    parts_ = std::max(1.0, std::floor(static_cast<double>(total) * fraction / static_cast<double>(kStretchBytes)));
  }
  [[nodiscard]] bool is_validation(std::int64_t offset) const {
    const double part = static_cast<double>(offset) / static_cast<double>(total_) * parts_;
    return part - std::floor(part) >= 1.0 - fraction_;
  }
  /// Blocks small enough that sides, which change between blocks, have the sizes asked for within a few percent.
  [[nodiscard]] std::int64_t block_bytes() const {
    const auto stretch = static_cast<std::int64_t>(static_cast<double>(total_) * fraction_ / parts_);
    return fraction_ == 0.0 ? kStretchBytes : std::clamp(stretch / 16, kMinBlockBytes, kStretchBytes);
  }

 private:
  std::int64_t total_;
  double fraction_, parts_;
};

/// What stands in the text and looks like nothing in an editor.
struct InvisibleMarks {
  std::int64_t byte_order_marks = 0;
  std::int64_t crlf_line_ends = 0;

  void count(const io::TextBlock& block) {
    if (block.starts_document && block.text.starts_with("\xEF\xBB\xBF")) ++byte_order_marks;
    for (std::size_t at = 0; (at = block.text.find("\r\n", at)) != std::string::npos; at += 2) ++crlf_line_ends;
  }
};

/// Whether a document is for validation: by its hash, which is uniform over [0, 2^64).
bool is_chosen(std::uint64_t hash, double val_fraction) {
  return static_cast<double>(hash >> 11U) * 0x1p-53 < val_fraction;
}

InvisibleMarks tokenize(const std::vector<TextFile>& files, const io::Tokenizer& tokenizer, double val_fraction,
                        CorpusPass& pass, SplitWriter& train, SplitWriter& val) {
  const FileCorpus corpus(files);
  const Stretches stretches(corpus.bytes(), val_fraction);
  const Token separator = tokenizer.end_of_text();
  const SplitWriter* previous = nullptr;
  InvisibleMarks marks;
  const auto reader = corpus.read(stretches.block_bytes(), &pass);
  std::size_t source = 0;
  for (io::TextBlock block; reader->next(block);) {
    for (; source < files[block.file].source; ++source) train.begin_source();
    const bool is_validation =
        block.document ? is_chosen(*block.document, val_fraction) : stretches.is_validation(block.offset);
    SplitWriter& side = is_validation ? val : train;
    if ((block.starts_document || &side != previous) && separator >= 0) side.append(std::span(&separator, 1));
    side.append(block.starts_document ? tokenizer.encode(block.text) : tokenizer.encode_rest(block.text));
    side.count_bytes(block.text.size());
    marks.count(block);
    previous = &side;
  }
  for (; source < files.back().source; ++source) train.begin_source();
  return marks;
}

/// Puts the finished temporary folder in the place of whatever prepared tokens were there.
void replace(const std::string& temporary, const std::string& folder) {
  if (fs::exists(folder) && !fs::is_empty(folder) && !io::is_there((fs::path(folder) / kTokensDescription).string())) {
    throw Error(Failure::write, folder + ": holds files that are not prepared tokens; name another folder");
  }
  fs::remove_all(folder);
  fs::rename(temporary, folder);
}

}  // namespace

void make_tokens(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& folder,
                 const std::string& fingerprint) {
  fs::create_directories(folder);
  const FileCorpus corpus(files);
  const auto tokenizer = io::make_tokenizer(order.tokenizer, &corpus, order.split);
  PreparedTokens tokens;
  tokens.tokenizer = tokenizer->name();
  tokens.tokenizer_file = (fs::path(folder) / tokenizer->file_name()).string();
  tokens.vocab = tokenizer->vocab_size();
  tokens.fingerprint = fingerprint;
  tokenizer->save(tokens.tokenizer_file);
  SplitWriter train(folder, "train", tokens.vocab);
  SplitWriter val(folder, "val", tokens.vocab);
  CorpusPass pass;
  pass.deduplicate = order.deduplicate;
  const InvisibleMarks marks = tokenize(files, *tokenizer, order.val_fraction, pass, train, val);
  tokens.counts = pass.counts;
  tokens.byte_order_marks = marks.byte_order_marks;
  tokens.crlf_line_ends = marks.crlf_line_ends;
  tokens.train = train.finish();
  tokens.val = val.finish();
  if (tokens.train.tokens + tokens.val.tokens == 0) {
    const std::string left_out = listed(tokens.counts);
    throw Error(Failure::input, files.front().key + ": no document" + (left_out.empty() ? "" : "; " + left_out));
  }
  if (!order.sources.empty()) tokens.train_sources = train.finished_sources();
  write_description(folder, tokens);
}

std::vector<std::string> notes_on(const PrepareOrder& order, const PreparedTokens& made) {
  std::vector<std::string> notes;
  if (const auto asked = io::bpe_size(order.tokenizer); asked && *asked > made.vocab) {
    notes.push_back(fmt::format("{}: {} ids were learned, the text has no more pairs", order.tokenizer, made.vocab));
  }
  if (made.byte_order_marks + made.crlf_line_ends > 0) {
    notes.push_back(
        fmt::format("byte-order marks ({}) and CR LF line ends ({}) go into the tokens as they are; dos2unix "
                    "FILE removes both",
                    made.byte_order_marks, made.crlf_line_ends));
  }
  if (const std::string left_out = listed(made.counts); !left_out.empty()) notes.push_back(left_out);
  if (order.val_fraction > 0.0 && made.val.tokens == 0 && made.counts.documents > 0) {
    notes.push_back(fmt::format("no validation text: of {} documents, val_fraction = {} chose none",
                                made.counts.documents, order.val_fraction));
  }
  if (const std::string skipped = listed(made.skipped); !skipped.empty()) notes.push_back(skipped);
  return notes;
}

PreparedTokens prepare(const PrepareOrder& order) {
  if (!(order.val_fraction >= 0.0 && order.val_fraction <= 0.5)) {
    throw Error(Failure::deck,
                "data.val_fraction = " + std::to_string(order.val_fraction) + ": accepted: number 0 to 0.5");
  }
  SkippedFiles skipped;
  const auto files = find_text(order.all_sources(), skipped);
  const std::string fingerprint = fingerprint_of(order, files);
  const std::string folder = io::without_trailing_slash(order.folder);
  const bool current = is_current(folder, fingerprint);
  if (!current) {
    const std::string temporary = io::partial_name(folder) + "." + std::to_string(::getpid());
    try {
      make_tokens(order, files, temporary, fingerprint);
      replace(temporary, folder);
    } catch (const fs::filesystem_error& problem) {
      fs::remove_all(temporary);
      throw Error(Failure::write, problem.path1().string() + ": " + problem.code().message());
    } catch (...) {
      fs::remove_all(temporary);
      throw;
    }
  }
  auto tokens = read_prepared(folder);
  tokens.reused = current;
  tokens.skipped = std::move(skipped);
  return tokens;
}

}  // namespace kozero::data
