// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_formats.hpp: files of token ids that other programs write, told apart by what lies beside them.
//   datatrove   x.ds and x.ds.index: ids alone; uint64 positions behind each document, the last is the number of ids
//   Megatron    x.bin and x.idx: ids alone; "MMIDIDX", version, type of ids, numbers of sequences and documents, then
//               the sequences' sizes as int32
//   llm.c       x.bin: a header, then ids (token_shard.hpp)
// All numbers are little-endian. datatrove 0.10, pipeline/tokens; Megatron-LM, core/datasets/indexed_dataset.py.
#pragma once
#include <cstdint>
#include <string>

#include "io/posix/file.hpp"

namespace kozero::data {

/// Where the ids of a file are: num_tokens ids of bytes_per_token bytes, 2 or 4, behind `header_bytes`.
struct ShardLayout {
  std::int64_t header_bytes = 0;
  std::int64_t bytes_per_token = 0;
  std::int64_t num_tokens = 0;
};

/// The layout that the file's format and size agree on. Throws Error(input) naming the file and what is wrong.
ShardLayout layout_of(const std::string& path, const io::FileDescriptor& file);

}  // namespace kozero::data
