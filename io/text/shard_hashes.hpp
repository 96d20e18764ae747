// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shard_hashes.hpp: the hashes of a token shard, in a file beside it.
//   train_000000.bin  ->  train_000000.bin.xxh3 = {"size": bytes, "xxh3_128": [XXH3-128 of every 16 MiB block]}
// TokenShardWriter writes it before the shard gets its name. A shard from elsewhere has none, which is no error.
#pragma once
#include <optional>
#include <string>

#include <kozero/io/block_hashes.hpp>

namespace kozero::io {

std::string hashes_file_of(const std::string& shard);

/// Hashes `file`, which is about to become `shard`, and writes the result beside that. Throws Error(write).
void write_shard_hashes(const std::string& file, const std::string& shard);

/// Nothing where the shard has no such file. Throws Error(input) naming it where it is damaged.
std::optional<FileHashes> read_shard_hashes(const std::string& shard);

}  // namespace kozero::io
