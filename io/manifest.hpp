// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// manifest.hpp: what a checkpoint says of itself, and the hashes that vouch for its files.
//   manifest.json: format_version; step, tokens, optimizer_start; data {seed, global_batch, num_samples, next_step};
//   model, tokenizer, deck; files {name: {size, xxh3_128 of every 16 MiB}}; hash of all that stands before it
// The data position is the next step alone: which samples a step takes is a function of (seed, step).
#pragma once
#include <map>
#include <string>

#include <kozero/io/block_hashes.hpp>

namespace kozero::io {

/// The state of a run that is not in tensors, and what a deck has to agree with to go on from it.
struct CheckpointRecord {
  std::int64_t step = 0;             ///< updates done
  std::int64_t tokens = 0;           ///< tokens seen
  std::int64_t optimizer_start = 0;  ///< updates made before the optimizer's state began (weights-only resumes)
  std::uint64_t seed = 1;
  std::int64_t global_batch = 0;     ///< sequences a step
  std::int64_t num_samples = 0;      ///< of the training data
  std::string model = {};                 ///< its shape, JSON
  std::string tokenizer = {};             ///< its name and the hash of its vocabulary; "none"
  std::string deck = {};                  ///< the resolved deck's text
};

struct Manifest {
  CheckpointRecord record;
  std::map<std::string, FileHashes> files;
};

std::string manifest_text(const Manifest& manifest);

/// Throws Error(input) naming `path` and the first thing that is wrong.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace kozero::io
