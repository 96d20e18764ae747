// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block_hashes.cpp: blocks of a file hashed by all ranks with xxHash, and the JSON form of the hashes.
#include <fmt/format.h>
#include <xxhash.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

namespace {

std::string digits_of(const XXH128_hash_t& hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

/// The size that rank 0 finds, so that all ranks distribute the same blocks.
std::int64_t size_of(distributed::Communicator& comm, const std::string& path) {
  const auto mine = distributed::agreed(comm, [&]() -> std::int64_t {
    if (comm.rank() != 0) return 0;
    std::error_code problem;
    const auto size = std::filesystem::file_size(path, problem);
    if (problem) throw Error(Failure::input, path + ": cannot read: " + problem.message());
    return static_cast<std::int64_t>(size);
  });
  return distributed::broadcast_value(comm, mine);
}

/// A span's hash, read in chunks that stay in a core's cache.
std::string digits_of(const FileDescriptor& file, const Span& span, std::vector<char>& chunk) {
  RunningHash hash;
  for (std::int64_t done = 0; done < span.extent;) {
    const auto extent = std::min(static_cast<std::int64_t>(chunk.size()), span.extent - done);
    file.read_at({chunk.data(), static_cast<std::size_t>(extent)}, span.offset + done);
    hash.add({chunk.data(), static_cast<std::size_t>(extent)});
    done += extent;
  }
  return hash.digits();
}

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;  // a shard has at most 2^31 ids, 512 blocks

}  // namespace

Hash128 xxh3_128_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string xxh3_128(std::string_view bytes) { return digits_of(XXH3_128bits(bytes.data(), bytes.size())); }

RunningHash::RunningHash() : state_(XXH3_createState(), [](XXH3_state_t* old) { XXH3_freeState(old); }) {
  require(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK, "XXH3: no state");
}

void RunningHash::add(std::string_view bytes) {
  require(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK, "XXH3: update");
}

std::string RunningHash::digits() const { return digits_of(XXH3_128bits_digest(state_.get())); }

Hash128 RunningHash::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {hash.high64, hash.low64};
}

std::string xxh3_128_of_file(const FileDescriptor& file) {
  RunningHash hash;
  std::string part(std::size_t{1} << 20, '\0');
  for (std::int64_t offset = 0;;) {
    const std::int64_t extent = file.read_up_to(part, offset);
    if (extent == 0) return hash.digits();
    hash.add(std::string_view(part).substr(0, static_cast<std::size_t>(extent)));
    offset += extent;
  }
}

std::string hash_of_hashes(const std::vector<std::string>& hashes) {
  RunningHash hash;
  for (const std::string& digits : hashes) hash.add(digits);
  return hash.digits();
}

FileHashes hashes_of_bytes(std::string_view bytes) {
  FileHashes hashes{static_cast<std::int64_t>(bytes.size()), {}};
  for (const auto& [offset, extent] : blocks_of(0, hashes.size)) {
    hashes.blocks.push_back(xxh3_128(bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(extent))));
  }
  return hashes;
}

nlohmann::ordered_json json_of(const FileHashes& hashes) {
  return {{"size", hashes.size}, {"xxh3_128", hashes.blocks}};
}

FileHashes hashes_of(const nlohmann::ordered_json& json) {
  FileHashes hashes{json.at("size").get<std::int64_t>(), json.at("xxh3_128").get<std::vector<std::string>>()};
  const auto blocks = static_cast<std::int64_t>(hashes.blocks.size());
  if (hashes.size < 0 || blocks != hashes.size / kBlockBytes + (hashes.size % kBlockBytes > 0 ? 1 : 0)) {
    throw Error(Failure::input,
                "a file of " + std::to_string(hashes.size) + " bytes with " + std::to_string(blocks) + " block hashes");
  }
  return hashes;
}

std::vector<Span> blocks_of(std::int64_t offset, std::int64_t extent) {
  std::vector<Span> spans;
  for (std::int64_t done = 0; done < extent; done += kBlockBytes) {
    spans.push_back({offset + done, std::min(kBlockBytes, extent - done)});
  }
  return spans;
}

std::vector<std::string> hash_spans(distributed::Communicator& comm, const std::string& path,
                                    const std::vector<Span>& spans) {
  constexpr std::size_t kChunk = std::size_t{256} << 10;
  const auto file = distributed::agreed(comm, [&] { return FileDescriptor(path, FileDescriptor::Use::read); });
  std::vector<char> chunk(kChunk);
  const auto all = distributed::map_over_ranks(comm, spans.size(), [&](std::size_t i) {
    std::array<char, kHashDigits> digits{};
    digits_of(file, spans[i], chunk).copy(digits.data(), digits.size());
    return digits;
  });
  std::vector<std::string> hashes;
  for (const auto& digits : all) hashes.emplace_back(digits.data(), digits.size());
  return hashes;
}

void refuse_other_bytes(const distributed::Communicator& comm, const std::string& path) {
  throw Error(Failure::input,
              fmt::format("{}: ranks 0 and {} find different files there: it was replaced meanwhile, or "
                          "their nodes do not share the folder; try again, or copy one to all nodes",
                          path, comm.rank()));
}

FileHashes hash_blocks(distributed::Communicator& comm, const std::string& path) {
  const std::int64_t size = size_of(comm, path);
  return {size, hash_spans(comm, path, blocks_of(0, size))};
}

void verify_blocks(distributed::Communicator& comm, const std::string& path, const FileHashes& wanted) {
  const std::int64_t size = size_of(comm, path);
  if (size != wanted.size) {
    throw Error(Failure::input, fmt::format("{}: {} bytes, the manifest says {}", path, size, wanted.size),
                Error::Seen::by_all_ranks);
  }
  const FileHashes found = hash_blocks(comm, path);
  const auto [differs, other] =
      std::mismatch(found.blocks.begin(), found.blocks.end(), wanted.blocks.begin(), wanted.blocks.end());
  if (differs == found.blocks.end() && other == wanted.blocks.end()) return;
  const std::int64_t block = differs - found.blocks.begin();
  throw Error(
      Failure::input,
      fmt::format("{}: bytes {} to {} are not what the manifest says (block {} of {})", path, block * kBlockBytes,
                  std::min(size, (block + 1) * kBlockBytes) - 1, block + 1, blocks_of(0, size).size()),
      Error::Seen::by_all_ranks);
}

std::string hashes_file_of(const std::string& shard) { return shard + ".xxh3"; }

void write_shard_hashes(const std::string& file, const std::string& shard) {
  const FileHashes hashes = hash_blocks(*distributed::make_self_communicator(), file);
  write_whole_file(hashes_file_of(shard), json_of(hashes).dump(1) + "\n");
}

std::optional<FileHashes> read_shard_hashes(const std::string& shard) {
  const std::string path = hashes_file_of(shard);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const std::string text = read_whole_file(path, kMaxBytes);
  try {
    return hashes_of(nlohmann::ordered_json::parse(text));
  } catch (const std::exception& problem) {  // from the parser, or Error
    throw Error(Failure::input, path + ": no hashes of a token shard: " + problem.what());
  }
}

}  // namespace kozero::io
