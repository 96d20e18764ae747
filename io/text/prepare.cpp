// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// prepare.cpp: tokenizes a corpus, splits off the validation text, and reads and writes tokens.json.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "io/text/prepare.hpp"
#include "io/text/token_shard.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 2;  // shards have hashes
constexpr std::int64_t kMaxDescriptionBytes = std::int64_t{16} << 20;

Json json_of(const TokenSplit& split) {
  Json files = Json::array();
  for (const auto& file : split.files) files.push_back(fs::path(file).filename().string());
  return {{"files", files}, {"tokens", split.tokens}, {"bytes", split.bytes}};
}

/// A file name from the description, inside the folder and nowhere else.
std::string inside(const std::string& folder, const std::string& name) {
  if (name.empty() || fs::path(name).filename() != name || name == "..") {
    throw Error(Failure::input, folder + "/" + kTokensDescription + ": file name \"" + name + "\" leaves the folder");
  }
  return (fs::path(folder) / name).string();
}

TokenSplit split_from(const std::string& folder, const Json& json) {
  TokenSplit split;
  for (const auto& name : json.at("files")) split.files.push_back(inside(folder, name.get<std::string>()));
  json.at("tokens").get_to(split.tokens);
  json.at("bytes").get_to(split.bytes);
  return split;
}

/// 16 hexadecimal digits.
std::string digits_of(const std::string& text) {
  std::array<char, 17> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), stream_key(0, text), 16).ptr;
  const std::string shortest(digits.begin(), end);
  return std::string(16 - shortest.size(), '0') + shortest;
}

/// The same from any working directory.
std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().generic_string(); }

}  // namespace

std::string fingerprint_of(const PrepareOrder& order, const std::vector<TextFile>& files) {
  std::ostringstream all;
  all.precision(17);
  const bool is_file = path_kind(order.tokenizer) == PathKind::file;
  all << kFormatVersion << '\0' << (is_file ? absolute(order.tokenizer) : order.tokenizer) << '\0' << order.val_fraction
      << '\0';
  if (!order.split.empty() && bpe_size(order.tokenizer)) all << order.split << '\0';
  if (is_file) all << read_whole_file(order.tokenizer, INT64_MAX) << '\0';
  for (const auto& file : files) all << absolute(file.path) << '\0' << file.bytes << '\0' << file.modified << '\0';
  return digits_of(all.str());
}

void write_description(const std::string& folder, const PreparedTokens& tokens) {
  const Json json = {{"format", "kozero-tokens"},
                     {"version", kFormatVersion},
                     {"fingerprint", tokens.fingerprint},
                     {"tokenizer", tokens.tokenizer},
                     {"tokenizer_file", fs::path(tokens.tokenizer_file).filename().string()},
                     {"vocab", tokens.vocab},
                     {"byte_order_marks", tokens.byte_order_marks},
                     {"crlf_line_ends", tokens.crlf_line_ends},
                     {"train", json_of(tokens.train)},
                     {"val", json_of(tokens.val)}};
  write_whole_file((fs::path(folder) / kTokensDescription).string(), json.dump(2) + "\n");
}

PreparedTokens read_prepared(const std::string& folder) {
  const std::string path = (fs::path(folder) / kTokensDescription).string();
  try {
    const Json json = Json::parse(read_whole_file(path, kMaxDescriptionBytes));
    if (json.at("format") != "kozero-tokens" || json.at("version") != kFormatVersion) {
      throw Error(Failure::input, path + ": not a description of tokens of version " + std::to_string(kFormatVersion));
    }
    PreparedTokens tokens;
    tokens.folder = folder;
    tokens.byte_order_marks = json.value("byte_order_marks", std::int64_t{0});
    tokens.crlf_line_ends = json.value("crlf_line_ends", std::int64_t{0});
    tokens.reused = true;
    tokens.train = split_from(folder, json.at("train"));
    tokens.val = split_from(folder, json.at("val"));
    json.at("tokenizer").get_to(tokens.tokenizer);
    tokens.tokenizer_file = inside(folder, json.at("tokenizer_file").get<std::string>());
    json.at("vocab").get_to(tokens.vocab);
    json.at("fingerprint").get_to(tokens.fingerprint);
    return tokens;
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  }
}

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

  TokenSplit finish() {
    if (shard_) close();
    return split_;
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

  std::string folder_, side_;
  std::int64_t vocab_;
  std::unique_ptr<TokenShardWriter> shard_;
  TokenSplit split_;
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

  void count(const TextBlock& block) {
    if (block.starts_document && block.text.starts_with("\xEF\xBB\xBF")) ++byte_order_marks;
    for (std::size_t at = 0; (at = block.text.find("\r\n", at)) != std::string::npos; at += 2) ++crlf_line_ends;
  }
};

InvisibleMarks tokenize(const std::vector<TextFile>& files, const Tokenizer& tokenizer, double val_fraction,
                        SplitWriter& train, SplitWriter& val) {
  const Stretches stretches(total_bytes(files), val_fraction);
  const Token separator = tokenizer.end_of_text();
  const SplitWriter* previous = nullptr;
  InvisibleMarks marks;
  TextReader reader(files, stretches.block_bytes());
  for (TextBlock block; reader.next(block);) {
    SplitWriter& side = stretches.is_validation(block.offset) ? val : train;
    if ((block.starts_document || &side != previous) && separator >= 0) side.append(std::span(&separator, 1));
    side.append(block.starts_document ? tokenizer.encode(block.text) : tokenizer.encode_rest(block.text));
    side.count_bytes(block.text.size());
    marks.count(block);
    previous = &side;
  }
  return marks;
}

bool holds_prepared(const std::string& folder) { return is_there((fs::path(folder) / kTokensDescription).string()); }

/// Puts the finished temporary folder in the place of whatever prepared tokens were there.
void replace(const std::string& temporary, const std::string& folder) {
  if (fs::exists(folder) && !fs::is_empty(folder) && !holds_prepared(folder)) {
    throw Error(Failure::write, folder + ": holds files that are not prepared tokens; name another folder");
  }
  fs::remove_all(folder);
  fs::rename(temporary, folder);
}

}  // namespace

void make_tokens(const PrepareOrder& order, const std::vector<TextFile>& files, const std::string& folder,
                 const std::string& fingerprint) {
  fs::create_directories(folder);
  const auto tokenizer = make_tokenizer(order.tokenizer, files, order.split);
  PreparedTokens tokens;
  tokens.tokenizer = tokenizer->name();
  tokens.tokenizer_file = (fs::path(folder) / tokenizer->file_name()).string();
  tokens.vocab = tokenizer->vocab_size();
  tokens.fingerprint = fingerprint;
  tokenizer->save(tokens.tokenizer_file);
  SplitWriter train(folder, "train", tokens.vocab);
  SplitWriter val(folder, "val", tokens.vocab);
  const InvisibleMarks marks = tokenize(files, *tokenizer, order.val_fraction, train, val);
  tokens.byte_order_marks = marks.byte_order_marks;
  tokens.crlf_line_ends = marks.crlf_line_ends;
  tokens.train = train.finish();
  tokens.val = val.finish();
  write_description(folder, tokens);
}

bool is_current(const std::string& folder, const std::string& fingerprint) {
  if (!holds_prepared(folder)) return false;
  try {
    const auto tokens = read_prepared(folder);
    const auto whole = [&](const TokenSplit& split) {
      if (split.files.empty()) return split.tokens == 0;
      const TokenShards all(split.files, tokens.vocab);
      return all.num_tokens() == split.tokens &&
             std::all_of(all.shards().begin(), all.shards().end(),
                         [](const TokenShard& shard) { return shard.recorded_hashes().has_value(); });
    };
    return tokens.fingerprint == fingerprint && fs::exists(tokens.tokenizer_file) && whole(tokens.train) &&
           whole(tokens.val);
  } catch (const Error&) {
    return false;  // damaged: made anew
  }
}

std::vector<std::string> notes_on(const PrepareOrder& order, const PreparedTokens& made) {
  std::vector<std::string> notes;
  if (const auto asked = bpe_size(order.tokenizer); asked && *asked > made.vocab) {
    notes.push_back(fmt::format("{}: {} ids were learned, the text has no more pairs", order.tokenizer, made.vocab));
  }
  if (made.byte_order_marks + made.crlf_line_ends > 0) {
    notes.push_back(
        fmt::format("byte-order marks ({}) and CR LF line ends ({}) go into the tokens as they are; dos2unix "
                    "FILE removes both",
                    made.byte_order_marks, made.crlf_line_ends));
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
  const auto files = find_text(order.text, skipped);
  const std::string fingerprint = fingerprint_of(order, files);
  const std::string folder = without_trailing_slash(order.folder);
  const bool current = is_current(folder, fingerprint);
  if (!current) {
    const std::string temporary = partial_name(folder) + "." + std::to_string(::getpid());
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

}  // namespace kozero::io
