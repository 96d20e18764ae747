// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/dist/self_communicator.hpp>
#include <kozero/io/text/shard_hashes.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;  // a shard has at most 2^31 ids, 512 blocks

}  // namespace

std::string hashes_file_of(const std::string& shard) { return shard + ".xxh3"; }

void write_shard_hashes(const std::string& file, const std::string& shard) {
  const FileHashes hashes = hash_blocks(*dist::make_self_communicator(), file);
  write_whole_file(hashes_file_of(shard), json_of(hashes).dump(1) + "\n");
}

std::optional<FileHashes> read_shard_hashes(const std::string& shard) {
  const std::string path = hashes_file_of(shard);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const std::string text = read_whole_file(path, kMaxBytes);
  try {
    return hashes_of(nlohmann::ordered_json::parse(text));
  } catch (const std::exception& problem) {  // of the parser, or Error
    throw Error(Failure::input, path + ": no hashes of a token shard: " + problem.what());
  }
}

}  // namespace kozero::io
