// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// block_hashes.hpp: XXH3-128 of every 16 MiB block of a file, and the .xxh3 file that records them for a token shard.
// The blocks of a file are distributed over the ranks. The hashes detect accidents; they are no signature.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kozero/distributed/communicator.hpp>

struct XXH3_state_s;

namespace kozero::io {

// XXH3-128 of every 16 MiB block of a file, or of parts of it, distributed over ranks.
//   block b = bytes [b * kBlockBytes, min((b + 1) * kBlockBytes, size))        rank b mod n hashes it
// It tells an accident (a flipped bit, a file cut short) from the bytes that were written; it is no signature.
// XXH3: Y. Collet, xxHash 0.8.

inline constexpr std::int64_t kBlockBytes = std::int64_t{16} << 20;
inline constexpr std::size_t kHashDigits = 32;  ///< hexadecimal, of XXH3-128

/// A file's size and the hash of each of its blocks.
struct FileHashes {
  std::int64_t size = 0;
  std::vector<std::string> blocks;
  bool operator==(const FileHashes&) const = default;
};

/// As JSON: {"size": ..., "xxh3_128": [one text a block]}.
nlohmann::ordered_json json_of(const FileHashes& hashes);
/// Throws Error(input) where size and number of hashes do not fit, nlohmann::json::exception where it is no such
/// object.
FileHashes hashes_of(const nlohmann::ordered_json& json);

/// XXH3-128 as 32 hexadecimal digits.
std::string xxh3_128(std::string_view bytes);

/// The same of bytes that come part after part.
class RunningHash {
 public:
  RunningHash();
  void add(std::string_view bytes);
  [[nodiscard]] std::string digits() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

/// XXH3-128 of the hashes' digits, one behind the other: the one hash of several blocks.
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

/// Throws Error(input): this rank finds other bytes at `path` than rank 0 does.
[[noreturn]] void refuse_other_bytes(const distributed::Communicator& comm, const std::string& path);

/// Of bytes that are about to be written as a file.
FileHashes hashes_of_bytes(std::string_view bytes);

/// Collective. Throws Error(input), seen by all ranks, where the file cannot be read.
FileHashes hash_blocks(distributed::Communicator& comm, const std::string& path);

/// Collective. Throws Error(input), seen by all ranks, naming the file and its size or first block that is another.
void verify_blocks(distributed::Communicator& comm, const std::string& path, const FileHashes& wanted);

// The hashes of a token shard, in a file beside it.
//   train_000000.bin  ->  train_000000.bin.xxh3 = {"size": bytes, "xxh3_128": [XXH3-128 of every 16 MiB block]}
// TokenShardWriter writes it before the shard gets its name. A shard from elsewhere has none, which is no error.

std::string hashes_file_of(const std::string& shard);

/// Hashes `file`, which is about to become `shard`, and writes the result beside that. Throws Error(write).
void write_shard_hashes(const std::string& file, const std::string& shard);

/// Nothing where the shard has no such file. Throws Error(input) naming it where it is damaged.
std::optional<FileHashes> read_shard_hashes(const std::string& shard);

}  // namespace kozero::io
