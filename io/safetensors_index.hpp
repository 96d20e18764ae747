// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// safetensors_index.hpp: model.safetensors.index.json, which says in which shard each tensor lies.
//   {"metadata": {"total_size": BYTES}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
// A shard is a plain file name of the same folder: no path leads out of it.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace kozero::io {

struct StoredTensor;

using WeightMap = std::map<std::string, std::string>;  ///< tensor -> file

/// Throws Error(input).
WeightMap read_safetensors_index(const std::string& path);

/// The files, each once, sorted.
std::vector<std::string> shards_of(const WeightMap& map);

/// The shards hold exactly what the index says. Throws Error(input) naming the tensor.
void check_safetensors_index(const std::string& path, const WeightMap& map,
                             const std::map<std::string, StoredTensor>& tensors);

/// The index's text for `map`.
std::string safetensors_index_text(const WeightMap& map, std::int64_t total_bytes);

}  // namespace kozero::io
