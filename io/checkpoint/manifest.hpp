// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// manifest.hpp: a checkpoint's description and the hashes of its files.
//   manifest.json: format_version; step, tokens, optimizer_start; loss_scale {scale, good_steps} if it is dynamic;
//   exactness {name: value}; tuning if there is one; validation_loss if it was measured at this step; provenance
//   {version, commit, ...}, which no hash of a dataset depends on; data {seed, global_batch, num_samples, next_step,
//   steps_before in a curriculum, corpus if it grows, mixture of several sources, answers of conversations,
//   sampled_hash, hash}; model, base below adapters, tokenizer, deck; files {name: {size, xxh3_128 of every 16 MiB}};
//   datasets {path in state.h5: hash}; hash of all text before it
// A dataset's hash depends only on its values, not on their place in the file: its bytes (f32, little endian,
// row-major) are cut into blocks of 16 MiB, and the hash is XXH3-128 of the blocks' XXH3-128, 32 hexadecimal digits
// each, joined. With h5py and xxhash, for `bytes = file[path][()].tobytes()`:
//   xxh3_128("".join(xxh3_128(bytes[i:i+2**24]).hexdigest() for i in range(0, len(bytes), 2**24))).hexdigest()
// The data position is the next step: the samples of a step are a function of (seed, step).
#pragma once
#include <map>
#include <optional>
#include <string>

#include "io/posix/block_hashes.hpp"

namespace kozero::io {

/// A dynamic loss scale, and the number of consecutive steps without overflow.
struct LossScale {
  double scale = 1.0;
  std::int64_t good_steps = 0;
  bool operator==(const LossScale&) const = default;
};

/// Hashes of the training data, "" if unknown or if there are no files (include/kozero/data/data_check.hpp).
struct DataIdentity {
  std::string sampled;       ///< of the shards' sizes and some of their bytes
  std::string whole;         ///< of every byte
  std::string mixture = {};  ///< how the samples of several sources are mixed; "" if they are not
  std::string answers = {};  ///< which tokens of conversations are trained; "" if the data are others
  bool operator==(const DataIdentity&) const = default;
};

/// The state of a run besides tensors, and the values with which a deck must agree to continue from it.
struct CheckpointRecord {
  std::int64_t step = 0;             ///< updates done
  std::int64_t tokens = 0;           ///< tokens seen
  std::int64_t optimizer_start = 0;  ///< updates made before the optimizer's state began (weights-only resumes)
  std::uint64_t seed = 1;
  std::int64_t global_batch = 0;  ///< sequences per step
  std::int64_t num_samples = 0;   ///< of the training data
  std::int64_t steps_before = 0;  ///< of the curriculum's earlier lessons, or epochs of a corpus that grows
  std::string corpus = {};        ///< with data.grow: the files of the epoch; "" otherwise
  DataIdentity data = {};
  std::string model = {};                    ///< its shape, JSON
  std::string base = {};                     ///< hash of the weights below the adapters; "" without adapters
  std::string tokenizer = {};                ///< its name and the hash of its vocabulary; "none"
  std::string deck = {};                     ///< the resolved deck's text
  std::optional<LossScale> loss_scale = {};  ///< for the next step; nullopt if it is fixed
  /// Further properties on which the bits of a step depend, by name (train/checkpoint.hpp); empty if unknown.
  std::map<std::string, std::string> exactness = {};
  std::string tuning = {};                     ///< XXH3-128 of the products' tuning file; "" without one
  std::optional<double> validation_loss = {};  ///< nats per token of the saved state; nullopt if not measured
  std::string provenance = {};                 ///< program, libraries, command, hosts: a JSON object; "" if unknown
};

struct Manifest {
  CheckpointRecord record;
  std::map<std::string, FileHashes> files;
  std::map<std::string, std::string> datasets;  ///< "optimizer/exp_avg/wte.weight" -> its hash
};

std::string manifest_text(const Manifest& manifest);

/// Throws Error(input) naming `path` and the first error.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace kozero::io
