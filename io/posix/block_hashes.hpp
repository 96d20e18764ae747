// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block_hashes.hpp: XXH3-128 of every 16 MiB block of a file, and the .xxh3 file that records them for a token shard.
//   block b = bytes [b * kBlockBytes, min((b + 1) * kBlockBytes, size))        rank b mod n hashes it
//   train_000000.bin  ->  train_000000.bin.xxh3 = {"size": bytes, "xxh3_128": [XXH3-128 of every 16 MiB block]}
// The hashes detect accidents (a flipped bit, a truncated file); they are not a signature. XXH3: Y. Collet, xxHash 0.8.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/distributed/communicator.hpp>

struct XXH3_state_s;

namespace kozero::io {

class FileDescriptor;

inline constexpr std::int64_t kBlockBytes = std::int64_t{16} << 20;
inline constexpr std::size_t kHashDigits = 32;  ///< hexadecimal, of XXH3-128

/// A file's size and the hash of each of its blocks.
struct FileHashes {
  std::int64_t size = 0;
  std::vector<std::string> blocks;
  bool operator==(const FileHashes&) const = default;
};

/// {"size": ..., "xxh3_128": [one text per block]}.
nlohmann::ordered_json json_of(const FileHashes& hashes);
/// Throws Error(input) if size and number of hashes disagree, nlohmann::json::exception if the object has another form.
FileHashes hashes_of(const nlohmann::ordered_json& json);

/// XXH3-128 as 32 hexadecimal digits.
std::string xxh3_128(std::string_view bytes);

/// XXH3-128 as two numbers, for tables in memory.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
};
Hash128 xxh3_128_of(std::string_view bytes);

/// The same for bytes that are added part by part.
class RunningHash {
 public:
  RunningHash();
  void add(std::string_view bytes);
  [[nodiscard]] std::string digits() const;
  [[nodiscard]] Hash128 value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

/// XXH3-128 of the file's bytes, which are read in parts.
std::string xxh3_128_of_file(const FileDescriptor& file);

/// XXH3-128 of the joined digits of the hashes: one hash for several blocks.
std::string hash_of_hashes(const std::vector<std::string>& hashes);

/// Bytes [offset, offset + extent) of a file, extent <= kBlockBytes.
struct Span {
  std::int64_t offset = 0;
  std::int64_t extent = 0;
};

/// [offset, offset + extent) cut into blocks, the last one short.
std::vector<Span> blocks_of(std::int64_t offset, std::int64_t extent);

/// The hash of each span, distributed over the ranks. Collective. Throws Error(input), seen by all ranks.
std::vector<std::string> hash_spans(distributed::Communicator& comm, const std::string& path,
                                    const std::vector<Span>& spans);

/// Throws Error(input): this rank finds other bytes at `path` than rank 0.
[[noreturn]] void refuse_other_bytes(const distributed::Communicator& comm, const std::string& path);

/// The hashes of bytes that are about to be written as a file.
FileHashes hashes_of_bytes(std::string_view bytes);

/// Collective. Throws Error(input), seen by all ranks, if the file cannot be read.
FileHashes hash_blocks(distributed::Communicator& comm, const std::string& path);

/// Collective. Throws Error(input), seen by all ranks, naming the file and its size or first block that differs.
void verify_blocks(distributed::Communicator& comm, const std::string& path, const FileHashes& wanted);

/// The file with the hashes of a token shard. TokenShardWriter writes it before it renames the shard. A shard from
/// elsewhere may have none.
std::string hashes_file_of(const std::string& shard);

/// Hashes `file`, which will be renamed to `shard`, and writes hashes_file_of(shard). Throws Error(write).
void write_shard_hashes(const std::string& file, const std::string& shard);

/// nullopt if the shard has no such file. Throws Error(input) naming the file if it is damaged.
std::optional<FileHashes> read_shard_hashes(const std::string& shard);

}  // namespace kozero::io

template <>
struct std::hash<kozero::io::Hash128> {
  std::size_t operator()(const kozero::io::Hash128& hash) const noexcept { return hash.low; }
};
