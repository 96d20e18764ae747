// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <cstring>

#include <kozero/core/error.hpp>
#include <kozero/io/token_shard.hpp>

namespace kozero::io {

static_assert(std::endian::native == std::endian::little, "token shards are mapped as they are: little endian");

namespace {

[[noreturn]] void malformed(const std::string& path, const std::string& reason) {
  throw Error(Failure::input, path + ": not a token shard: " + reason);
}

using Header = std::array<std::int32_t, 3>;

Header read_header(const std::string& path, const MappedFile& file) {
  const auto size = static_cast<std::int64_t>(file.bytes().size());
  if (size < kShardHeaderBytes) {
    malformed(path, std::to_string(size) + " bytes, less than the header's " + std::to_string(kShardHeaderBytes));
  }
  Header header{};
  std::memcpy(header.data(), file.bytes().data(), sizeof(header));
  return header;
}

ShardFormat format_of(const std::string& path, const Header& header) {
  for (const ShardFormat& format : {kNarrowShard, kWideShard}) {
    if (header[0] != format.magic) continue;
    if (header[1] == format.version) return format;
    malformed(path, "version " + std::to_string(header[1]) + ", accepted with magic " + std::to_string(format.magic) +
                        " is " + std::to_string(format.version));
  }
  malformed(path, "magic " + std::to_string(header[0]) + ", accepted are " + std::to_string(kNarrowShard.magic) +
                      " and " + std::to_string(kWideShard.magic));
}

/// Widens ids; returns the position of the first that is not below `vocab`, or -1.
template <class Stored>
std::int64_t widen(const std::byte* from, std::span<Token> out, std::int64_t vocab) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored id = 0;
    std::memcpy(&id, from + i * sizeof(Stored), sizeof(Stored));
    if (static_cast<std::int64_t>(id) >= vocab) return static_cast<std::int64_t>(i);
    out[i] = static_cast<Token>(id);
  }
  return -1;
}

}  // namespace

TokenShard::TokenShard(const std::string& path, std::int64_t vocab) : path_(path), vocab_(vocab), file_(path) {
  require(vocab > 0 && vocab <= INT32_MAX, "TokenShard: vocabulary of " + std::to_string(vocab));
  const Header header = read_header(path, file_);
  format_ = format_of(path, header);
  num_tokens_ = header[2];
  const std::int64_t wanted = kShardHeaderBytes + num_tokens_ * format_.bytes_per_token;
  const auto size = static_cast<std::int64_t>(file_.bytes().size());
  if (num_tokens_ < 0) malformed(path, "a count of " + std::to_string(num_tokens_) + " tokens");
  if (size != wanted) {
    malformed(path, "its header counts " + std::to_string(num_tokens_) + " tokens, " + std::to_string(wanted) +
                        " bytes, but it has " + std::to_string(size) + (size < wanted ? ": truncated" : ""));
  }
}

void TokenShard::read(std::int64_t first, std::span<Token> out) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_tokens_,
          path_ + ": read of tokens outside the shard");
  const std::byte* from = file_.bytes().data() + kShardHeaderBytes + first * format_.bytes_per_token;
  const std::int64_t bad =
      format_.bytes_per_token == 2 ? widen<std::uint16_t>(from, out, vocab_) : widen<std::uint32_t>(from, out, vocab_);
  if (bad < 0) return;
  std::uint32_t id = 0;
  std::memcpy(&id, from + bad * format_.bytes_per_token, static_cast<std::size_t>(format_.bytes_per_token));
  throw Error(Failure::input, path_ + ": token " + std::to_string(first + bad) + " is " + std::to_string(id) +
                                  ", outside the vocabulary of " + std::to_string(vocab_));
}

}  // namespace kozero::io
