// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/text/shard_hashes.hpp>
#include <kozero/io/token_shard_writer.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

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

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace

TokenShardWriter::TokenShardWriter(std::string path, std::int64_t vocab)
    : path_(std::move(path)), vocab_(vocab), format_(shard_format(vocab)) {
  remove_quietly(partial_name(path_));
  file_.emplace(partial_name(path_), FileDescriptor::Use::create);
  buffer_ = header_of(format_, 0);
}

TokenShardWriter::~TokenShardWriter() {
  if (file_) remove_quietly(partial_name(path_));
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
  write_shard_hashes(partial_name(path_), path_);
  publish(path_);
  file_.reset();
}

}  // namespace kozero::io
