// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_shard.cpp: reading, checking and writing of token shards.
#include <sys/resource.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/token_shard.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"
#include "src/data/token_formats.hpp"

namespace kozero::data {

static_assert(std::endian::native == std::endian::little, "token shards are read as they are: little endian");

namespace {

template <class Stored>
std::int64_t id_at(const char* ids, std::int64_t index) {
  Stored id = 0;
  std::memcpy(&id, ids + index * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
  return id;
}

/// The first of `count` ids that is not below `vocab`, or -1. The largest is found first, by SIMD.
template <class Stored>
std::int64_t first_outside(const char* ids, std::int64_t count, std::int64_t vocab) {
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, id_at<Stored>(ids, i));
  for (std::int64_t i = 0; largest >= vocab && i < count; ++i) {
    if (id_at<Stored>(ids, i) >= vocab) return i;
  }
  return -1;
}

/// If the system refuses, the shard that cannot be opened is an error of its own.
void allow_open_files(std::size_t count) {
  constexpr rlim_t kOthers = 256;  // logs, checkpoints, MPI's
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

std::string header_of(const ShardFormat& format, std::int64_t num_tokens) {
  std::array<std::int32_t, 256> header{};
  header[0] = format.magic;
  header[1] = format.version;
  header[2] = static_cast<std::int32_t>(num_tokens);
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), header.data(), sizeof(header));
  return bytes;
}

/// The little-endian uint64 of a file; nullopt if they do not increase below `end`.
std::optional<std::vector<std::int64_t>> positions_in(const std::string& path, std::int64_t end) {
  const std::string bytes = io::read_whole_file(path, (end + 1) * std::int64_t{sizeof(std::int64_t)});
  std::vector<std::int64_t> positions(bytes.size() / sizeof(std::int64_t));
  std::memcpy(positions.data(), bytes.data(), positions.size() * sizeof(std::int64_t));
  const bool increases = std::ranges::adjacent_find(positions, std::greater_equal()) == positions.end();
  const bool is_inside = positions.empty() || (positions.front() >= 0 && positions.back() < end);
  if (bytes.size() % sizeof(std::int64_t) != 0 || !increases || !is_inside) return std::nullopt;
  return positions;
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

/// Where documents begin in a shard that does not record it.
std::vector<std::int64_t> found_documents(const TokenShard& shard, Token start) {
  constexpr std::int64_t kTokens = 1 << 18;
  std::vector<std::int64_t> starts;
  std::vector<Token> tokens;
  for (std::int64_t first = 0; first < shard.num_tokens(); first += kTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kTokens, shard.num_tokens() - first)));
    shard.read(first, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == start) starts.push_back(first + static_cast<std::int64_t>(i));
    }
  }
  return starts;
}

}  // namespace

TokenShard::TokenShard(const std::string& path, std::int64_t vocab)
    : path_(path), vocab_(vocab), file_(path, io::FileDescriptor::Use::read), size_(file_.size()) {
  require(vocab > 0 && vocab <= INT32_MAX, "TokenShard: vocabulary of " + std::to_string(vocab));
  const ShardLayout layout = layout_of(path, file_);
  header_bytes_ = layout.header_bytes;
  bytes_per_token_ = layout.bytes_per_token;
  num_tokens_ = layout.num_tokens;
  recorded_ = io::read_shard_hashes(path);
  if (recorded_ && recorded_->size != size_) {
    throw Error(Failure::input, path + ": " + std::to_string(size_) + " bytes, " + io::hashes_file_of(path) + " says " +
                                    std::to_string(recorded_->size) + "; remove that if the shard was made anew");
  }
}

void TokenShard::read_bytes(std::span<char> bytes, std::int64_t offset) const {
  try {
    file_.read_at(bytes, offset);
  } catch (const Error&) {
    const std::int64_t now = file_.size();
    if (now >= size_) throw;
    throw Error(Failure::input, path_ + ": it shrank while it was in use, from " + std::to_string(size_) + " to " +
                                    std::to_string(now) + " bytes");
  }
}

void TokenShard::refuse_id(std::int64_t position, std::int64_t id) const {
  throw Error(Failure::input, path_ + ": token " + std::to_string(position) + " is " + std::to_string(id) +
                                  ", outside the vocabulary of " + std::to_string(vocab_));
}

void TokenShard::read(std::int64_t first, std::span<Token> out) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_tokens_,
          path_ + ": read of tokens outside the shard");
  const auto count = static_cast<std::int64_t>(out.size());
  const std::int64_t bytes = count * bytes_per_token_;
  // Narrow ids come into the upper half of `out` and are widened in place, first to last.
  char* ids = reinterpret_cast<char*>(out.data()) + count * static_cast<std::int64_t>(sizeof(Token)) - bytes;
  read_bytes({ids, static_cast<std::size_t>(bytes)}, header_bytes_ + first * bytes_per_token_);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = bytes_per_token_ == 2 ? id_at<std::uint16_t>(ids, i) : id_at<std::uint32_t>(ids, i);
    if (id >= vocab_) refuse_id(first + i, id);
    out[static_cast<std::size_t>(i)] = static_cast<Token>(id);
  }
}

std::int64_t TokenShard::num_blocks() const { return (size_ + io::kBlockBytes - 1) / io::kBlockBytes; }

std::string TokenShard::check_block(std::int64_t block, const std::atomic<bool>& stop) const {
  constexpr std::int64_t kChunk = std::int64_t{256} << 10;
  const std::int64_t end = std::min(size_, (block + 1) * io::kBlockBytes);
  std::vector<char> chunk(static_cast<std::size_t>(kChunk));
  io::RunningHash hash;
  std::int64_t bad_position = -1;
  std::int64_t bad_id = 0;
  for (std::int64_t offset = block * io::kBlockBytes; offset < end; offset += kChunk) {
    if (stop) return "";
    const std::int64_t bytes = std::min(kChunk, end - offset);
    read_bytes({chunk.data(), static_cast<std::size_t>(bytes)}, offset);
    hash.add({chunk.data(), static_cast<std::size_t>(bytes)});
    const std::int64_t skipped = offset == 0 ? header_bytes_ : 0;
    const char* ids = chunk.data() + skipped;
    const std::int64_t count = (bytes - skipped) / bytes_per_token_;
    const bool narrow = bytes_per_token_ == 2;
    const std::int64_t bad = bad_position >= 0 ? -1
                             : narrow          ? first_outside<std::uint16_t>(ids, count, vocab_)
                                               : first_outside<std::uint32_t>(ids, count, vocab_);
    if (bad < 0) continue;
    bad_position = (offset + skipped - header_bytes_) / bytes_per_token_ + bad;
    bad_id = narrow ? id_at<std::uint16_t>(ids, bad) : id_at<std::uint32_t>(ids, bad);
  }
  const std::string digits = hash.digits();
  if (recorded_ && digits != recorded_->blocks[static_cast<std::size_t>(block)]) {
    throw Error(Failure::input, path_ + ": bytes " + std::to_string(block * io::kBlockBytes) + " to " +
                                    std::to_string(end - 1) + " are not what " + io::hashes_file_of(path_) +
                                    " says (block " + std::to_string(block + 1) + " of " +
                                    std::to_string(num_blocks()) +
                                    "): it was changed after it was made; restore it, or remove its folder and "
                                    "prepare the text again");
  }
  if (bad_position >= 0) refuse_id(bad_position, bad_id);
  return digits;
}

std::string TokenShard::sampled_hash() const {
  constexpr std::int64_t kParts = 4;
  constexpr std::int64_t kPart = 4096;
  io::RunningHash hash;
  hash.add(std::to_string(size_));
  std::vector<char> part(static_cast<std::size_t>(std::min(kPart, size_)));
  for (std::int64_t i = 0; i < kParts; ++i) {
    read_bytes(part, (size_ - static_cast<std::int64_t>(part.size())) * i / (kParts - 1));
    hash.add({part.data(), part.size()});
  }
  return hash.digits();
}

std::optional<std::vector<std::int64_t>> recorded_documents(const TokenShard& shard) {
  const std::string path = shard.path() + ".documents";
  if (!io::is_there(path)) return std::nullopt;
  if (auto starts = positions_in(path, shard.num_tokens()); starts) return starts;
  throw Error(Failure::input, path + ": not the documents of its shard; remove it, or make the tokens again");
}

std::optional<std::vector<TokenRange>> recorded_answers(const TokenShard& shard) {
  const std::string path = shard.path() + ".answers";
  if (!io::is_there(path)) return std::nullopt;
  const auto bounds = positions_in(path, shard.num_tokens() + 1);
  if (!bounds || bounds->size() % 2 != 0) {
    throw Error(Failure::input, path + ": not the answers of its shard; make the tokens again");
  }
  std::vector<TokenRange> answers;
  for (std::size_t i = 0; i < bounds->size(); i += 2) answers.push_back({(*bounds)[i], (*bounds)[i + 1]});
  return answers;
}

TokenShards::TokenShards(const std::vector<std::string>& paths, std::int64_t vocab, std::vector<std::size_t> order)
    : order_(std::move(order)) {
  if (paths.empty()) throw Error(Failure::deck, "data.tokens: no file given");
  allow_open_files(paths.size());
  for (const auto& path : paths) shards_.emplace_back(path, vocab);
  if (order_.empty()) {
    order_.resize(paths.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }
  std::int64_t end = 0;
  for (const std::size_t shard : order_) ends_.push_back(end += shards_.at(shard).num_tokens());
}

std::vector<std::int64_t> TokenShards::documents(Token start) const {
  std::vector<std::vector<std::int64_t>> of_shards;
  for (const TokenShard& shard : shards_) {
    auto recorded = recorded_documents(shard);
    of_shards.push_back(recorded ? *std::move(recorded) : found_documents(shard, start));
  }
  std::vector<std::int64_t> all = {0};
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const std::int64_t begin = ends_[place] - shards_[order_[place]].num_tokens();
    for (const std::int64_t first : of_shards[order_[place]]) {
      if (begin + first > 0) all.push_back(begin + first);
    }
  }
  return all;
}

std::optional<std::vector<TokenRange>> TokenShards::answers() const {
  std::vector<std::vector<TokenRange>> of_shards;
  for (const TokenShard& shard : shards_) {
    if (auto recorded = recorded_answers(shard)) of_shards.push_back(*std::move(recorded));
  }
  if (of_shards.empty()) return std::nullopt;
  if (of_shards.size() != shards_.size()) {
    throw Error(Failure::input, shards_.front().path() + ": of " + std::to_string(shards_.size()) + " shards, " +
                                    std::to_string(of_shards.size()) +
                                    " have .answers: shards of conversations and of text are not mixed");
  }
  std::vector<TokenRange> all;
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const std::int64_t begin = ends_[place] - shards_[order_[place]].num_tokens();
    for (const auto& answer : of_shards[order_[place]]) all.push_back({begin + answer.first, begin + answer.end});
  }
  return all;
}

std::string TokenShards::order() const {
  std::string text;
  bool each_once = order_.size() == shards_.size();
  for (std::size_t i = 0; i < order_.size(); ++i) {
    each_once = each_once && order_[i] == i;
    text += (i == 0 ? "" : " ") + std::to_string(order_[i]);
  }
  return each_once ? "" : text;
}

void TokenShards::read(std::int64_t first, std::span<Token> out) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_tokens(),
          "TokenShards: read of tokens outside the sequence");
  auto place = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  while (!out.empty()) {
    const TokenShard& shard = shards_[order_[place]];
    const std::int64_t begin = ends_[place] - shard.num_tokens();
    const auto here = std::min(static_cast<std::int64_t>(out.size()), ends_[place] - first);
    shard.read(first - begin, out.first(static_cast<std::size_t>(here)));
    out = out.subspan(static_cast<std::size_t>(here));
    first += here;
    ++place;
  }
}

TokenShardWriter::TokenShardWriter(std::string path, std::int64_t vocab)
    : path_(std::move(path)), vocab_(vocab), format_(shard_format(vocab)) {
  remove_quietly(io::partial_name(path_));
  file_.emplace(io::partial_name(path_), io::FileDescriptor::Use::create);
  buffer_ = header_of(format_, 0);
}

TokenShardWriter::~TokenShardWriter() {
  if (file_) remove_quietly(io::partial_name(path_));
}

void TokenShardWriter::append(std::span<const Token> tokens) {
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
  require(num_tokens_ <= INT32_MAX, path_ + ": more tokens than a shard can count");
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_) throw Error(Failure::internal, path_ + ": token outside the vocabulary");
    buffer_.append(reinterpret_cast<const char*>(&token), static_cast<std::size_t>(format_.bytes_per_token));
    if (buffer_.size() >= kBufferBytes) flush();
  }
}

void TokenShardWriter::flush() {
  file_->write(buffer_);
  buffer_.clear();
}

void TokenShardWriter::close() {
  flush();
  file_->write_at(header_of(format_, num_tokens_), 0);
  file_->close();
  io::write_shard_hashes(io::partial_name(path_), path_);
  io::publish(path_);
  file_.reset();
}

}  // namespace kozero::data
