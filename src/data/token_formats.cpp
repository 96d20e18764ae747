// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_formats.cpp: the table of formats, and how each gives the layout of its ids.
#include "src/data/token_formats.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/token_shard.hpp>

namespace kozero::data {
namespace {

namespace fs = std::filesystem;
using io::FileDescriptor;

/// A file of ids that is being opened.
struct Ids {
  const std::string& path;
  const FileDescriptor& file;
  std::int64_t size;  ///< bytes
};

[[noreturn]] void malformed(const std::string& path, const std::string& reason) {
  throw Error(Failure::input, path + ": not a token shard: " + reason);
}

template <class Number>
Number number_at(const FileDescriptor& file, std::int64_t offset) {
  Number number{};
  file.read_at({reinterpret_cast<char*>(&number), sizeof(number)}, offset);
  return number;
}

// ---- llm.c
// ------------------------------------------------------------------------------------------------------------

ShardLayout of_llm_c(const Ids& ids) {
  if (ids.size < kShardHeaderBytes) {
    malformed(ids.path, fmt::format("{} bytes, less than the header's {}", ids.size, kShardHeaderBytes));
  }
  const auto magic = number_at<std::int32_t>(ids.file, 0);
  const auto version = number_at<std::int32_t>(ids.file, 4);
  const std::int64_t num_tokens = number_at<std::int32_t>(ids.file, 8);
  for (const ShardFormat& format : {kNarrowShard, kWideShard}) {
    if (magic != format.magic) continue;
    if (version != format.version) {
      malformed(ids.path,
                fmt::format("version {}, accepted with magic {} is {}", version, format.magic, format.version));
    }
    if (num_tokens < 0) malformed(ids.path, fmt::format("a count of {} tokens", num_tokens));
    const std::int64_t wanted = kShardHeaderBytes + num_tokens * format.bytes_per_token;
    if (ids.size != wanted) {
      malformed(ids.path, fmt::format("its header counts {} tokens, {} bytes, but it has {}{}", num_tokens, wanted,
                                      ids.size, ids.size < wanted ? ": truncated" : ""));
    }
    return {kShardHeaderBytes, format.bytes_per_token, num_tokens};
  }
  malformed(ids.path,
            fmt::format("magic {}, accepted are {} and {}; datatrove's and Megatron's shards need their index "
                        "beside them",
                        magic, kNarrowShard.magic, kWideShard.magic));
}

// ---- datatrove
// --------------------------------------------------------------------------------------------------------

std::string datatrove_index(const std::string& path) { return path + ".index"; }

ShardLayout of_datatrove(const Ids& ids) {
  const std::string path = datatrove_index(ids.path);
  const FileDescriptor index(path, FileDescriptor::Use::read);
  constexpr auto kEntry = static_cast<std::int64_t>(sizeof(std::uint64_t));
  const std::int64_t size = index.size();
  if (size == 0 || size % kEntry != 0) malformed(path, fmt::format("{} bytes, not 64-bit positions", size));
  const auto num_tokens = static_cast<std::int64_t>(number_at<std::uint64_t>(index, size - kEntry));
  for (const std::int64_t bytes : {2, 4}) {
    if (num_tokens > 0 && ids.size % bytes == 0 && ids.size / bytes == num_tokens) return {0, bytes, num_tokens};
  }
  malformed(ids.path, fmt::format("{} counts {} tokens, but it has {} bytes, neither 2 nor 4 per token", path,
                                  num_tokens, ids.size));
}

// ---- Megatron
// ---------------------------------------------------------------------------------------------------------

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);

std::string megatron_index(const std::string& path) { return fs::path(path).replace_extension(".idx").string(); }

bool is_megatron(const std::string& path) {
  const std::string index = megatron_index(path);
  if (fs::path(path).extension() != ".bin" || io::path_kind(index) != io::PathKind::file) return false;
  std::array<char, kMegatronMagic.size()> magic{};
  const auto got = FileDescriptor(index, FileDescriptor::Use::read).read_up_to(magic, 0);
  return std::string_view(magic.data(), static_cast<std::size_t>(got)) == kMegatronMagic;
}

/// The sum of `count` int32 numbers.
std::int64_t sum_of_sizes(const FileDescriptor& index, std::int64_t offset, std::int64_t count) {
  constexpr std::int64_t kMostAtOnce = 1 << 16;
  std::vector<std::int32_t> sizes;
  std::int64_t sum = 0;
  for (std::int64_t done = 0; done < count; done += kMostAtOnce) {
    sizes.resize(static_cast<std::size_t>(std::min(kMostAtOnce, count - done)));
    index.read_at({reinterpret_cast<char*>(sizes.data()), sizes.size() * sizeof(std::int32_t)},
                  offset + done * static_cast<std::int64_t>(sizeof(std::int32_t)));
    for (const std::int32_t size : sizes) sum += size;
  }
  return sum;
}

ShardLayout of_megatron(const Ids& ids) {
  const std::string path = megatron_index(ids.path);
  const FileDescriptor index(path, FileDescriptor::Use::read);
  constexpr std::int64_t kVersionAt = kMegatronMagic.size();
  constexpr std::int64_t kTypeAt = kVersionAt + 8;
  constexpr std::int64_t kSequencesAt = kTypeAt + 1;
  constexpr std::int64_t kSizesAt = kSequencesAt + 8 + 8;  // behind the numbers of sequences and of documents
  constexpr int kInt32 = 4;
  constexpr int kUint16 = 8;
  if (index.size() < kSizesAt)
    malformed(path, fmt::format("{} bytes, less than its header's {}", index.size(), kSizesAt));
  const auto version = number_at<std::uint64_t>(index, kVersionAt);
  const int type = number_at<std::uint8_t>(index, kTypeAt);
  const auto sequences = number_at<std::uint64_t>(index, kSequencesAt);
  if (version != 1) malformed(path, fmt::format("version {}, accepted is 1", version));
  if (type != kInt32 && type != kUint16) {
    malformed(path, fmt::format("ids of type {}, accepted are {} (int32) and {} (uint16)", type, kInt32, kUint16));
  }
  const auto most = static_cast<std::uint64_t>(index.size() - kSizesAt) / sizeof(std::int32_t);
  if (sequences > most) malformed(path, fmt::format("a count of {} sequences, more than it has bytes for", sequences));
  const std::int64_t bytes = type == kUint16 ? 2 : 4;
  const std::int64_t num_tokens = sum_of_sizes(index, kSizesAt, static_cast<std::int64_t>(sequences));
  if (num_tokens < 0 || ids.size % bytes != 0 || ids.size / bytes != num_tokens) {
    malformed(ids.path,
              fmt::format("{} counts {} tokens of {} bytes, but it has {} bytes", path, num_tokens, bytes, ids.size));
  }
  return {0, bytes, num_tokens};
}

struct TokenFormat {
  bool (*fits)(const std::string& path);
  ShardLayout (*layout)(const Ids&);
};

/// The first row that fits a file reads it. The last one fits every file.
constexpr std::array kTokenFormats = {
    TokenFormat{[](const std::string& path) { return io::path_kind(datatrove_index(path)) == io::PathKind::file; },
                of_datatrove},
    TokenFormat{is_megatron, of_megatron},
    TokenFormat{[](const std::string& /*path*/) { return true; }, of_llm_c},
};

}  // namespace

ShardLayout layout_of(const std::string& path, const FileDescriptor& file) {
  const auto* const row = std::ranges::find_if(kTokenFormats, [&](const auto& each) { return each.fits(path); });
  return row->layout({path, file, file.size()});
}

}  // namespace kozero::data
