// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// split_writer.cpp: cuts tokens into shards, and takes over the shards of a killed process.
#include "src/data/split_writer.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <utility>

#include "io/posix/file.hpp"

namespace kozero::data {

namespace fs = std::filesystem;

namespace {

void write_numbers(const std::string& path, const std::vector<std::uint64_t>& numbers) {
  io::write_whole_file(path, {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)});
}

std::int64_t num_trained(const TokenShard& shard) {
  std::int64_t sum = 0;
  for (const auto& range : recorded_answers(shard).value_or(std::vector<TokenRange>())) sum += range.end - range.first;
  return sum;
}

}  // namespace

SplitWriter::SplitWriter(std::string folder, std::string side, std::int64_t vocab, std::int64_t shard_tokens,
                         std::vector<ShardEnd> finished, bool has_answers)
    : folder_(std::move(folder)),
      side_(std::move(side)),
      vocab_(vocab),
      shard_tokens_(shard_tokens),
      ends_(std::move(finished)),
      has_answers_(has_answers) {
  if (!ends_.empty()) first_needed_ = ends_.back().block;
}

void SplitWriter::append(std::int64_t block, std::span<const Token> tokens, bool begins,
                         std::span<const TokenRange> answers) {
  take_finished(block + 1);
  last_ = {block, 0};
  if (!ends_.empty() && ends_.back().block == block && shard_ == nullptr) {  // its first tokens are there
    last_.tokens = ends_.back().tokens;
    tokens = tokens.subspan(static_cast<std::size_t>(last_.tokens));
    begins = begins && last_.tokens == 0;
  }
  while (!tokens.empty()) {
    if (!shard_) open();
    if (std::exchange(begins, false)) documents_.push_back(static_cast<std::uint64_t>(shard_->num_tokens()));
    const auto room = static_cast<std::size_t>(shard_tokens_ - shard_->num_tokens());
    const auto here = tokens.first(std::min(tokens.size(), room));
    add_answers(answers, std::ssize(here));
    shard_->append(here);
    split_.tokens += std::ssize(here);
    last_.tokens += std::ssize(here);
    tokens = tokens.subspan(here.size());
    if (shard_->num_tokens() == shard_tokens_) close(last_);
  }
}

void SplitWriter::begin_source(std::int64_t block) {
  take_finished(block);
  if (shard_) close(last_);
  sources_.push_back(since_last_source());
}

TokenSplit SplitWriter::finish() {
  take_finished(INT64_MAX);
  if (shard_) close(last_);
  return split_;
}

std::vector<TokenSplit> SplitWriter::finished_sources() const {
  auto all = sources_;
  all.push_back(since_last_source());
  return all;
}

std::string SplitWriter::path_of(const std::string& folder, const std::string& side, std::size_t number) {
  return (fs::path(folder) / fmt::format("{}_{:06}.bin", side, number)).string();
}

void SplitWriter::open() {
  split_.files.push_back(path_of(folder_, side_, split_.files.size()));
  shard_ = std::make_unique<TokenShardWriter>(split_.files.back(), vocab_);
}

/// Adds what the next `num_tokens` tokens of the block, from last_.tokens on, have of its answers.
void SplitWriter::add_answers(std::span<const TokenRange> answers, std::int64_t num_tokens) {
  const std::int64_t shift = shard_->num_tokens() - last_.tokens;
  for (const auto& range : answers) {
    const std::int64_t first = std::max(range.first, last_.tokens);
    const std::int64_t end = std::min(range.end, last_.tokens + num_tokens);
    if (first >= end) continue;
    for (const std::int64_t bound : {first, end}) answers_.push_back(static_cast<std::uint64_t>(bound + shift));
    split_.trained += end - first;
  }
}

void SplitWriter::close(const ShardEnd& end) {
  write_numbers(split_.files.back() + ".documents", documents_);
  if (has_answers_) write_numbers(split_.files.back() + ".answers", answers_);
  shard_->close();
  shard_.reset();
  documents_.clear();
  answers_.clear();
  ends_.push_back(end);
  taken_ = ends_.size();
}

/// Counts the finished shards that end before block `behind`.
void SplitWriter::take_finished(std::int64_t behind) {
  for (; taken_ < ends_.size() && ends_[taken_].block < behind; ++taken_) {
    split_.files.push_back(path_of(folder_, side_, split_.files.size()));
    const TokenShard shard(split_.files.back(), vocab_);
    split_.tokens += shard.num_tokens();
    if (has_answers_) split_.trained += num_trained(shard);
  }
}

TokenSplit SplitWriter::since_last_source() const {
  TokenSplit rest = split_;
  for (const auto& source : sources_) {
    rest.files.erase(rest.files.begin(), rest.files.begin() + std::ssize(source.files));
    rest.tokens -= source.tokens;
    rest.bytes -= source.bytes;
    rest.trained -= source.trained;
  }
  return rest;
}

}  // namespace kozero::data
