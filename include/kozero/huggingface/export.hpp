// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// export.hpp: a weights file or a checkpoint as a Hugging Face folder, or as one plain HDF5 weights file.
//   OUT/  config.json  [tokenizer.json | tokenizer.model  tokenizer_config.json]
//         model.safetensors, or shards with model.safetensors.index.json
// Hugging Face's transformers loads the folder without further code. Tensors stream from HDF5 in chunks on one process,
// so memory does not grow with the model. f32 values keep their bits; bf16 and f16 are the nearest value, ties to even.
// A tied head is not written, as in transformers' own files. Biases that the network does not have are zeros.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include "io/checkpoint/tensor_groups.hpp"

namespace kozero::huggingface {

/// Reads elements [first, first + count) of the table's tensor `index`.
using TensorReader = std::function<void(std::size_t index, std::int64_t first, std::int64_t count, float* to)>;

/// Whole weights that are in no file: a base with its adapters added.
struct MergedWeights {
  TensorReader read;
  io::WeightsDescription description = {};  ///< for the weights file
};

struct ExportOrder {
  std::string weights;               ///< weights.h5, or state.h5
  std::string tokenizer;             ///< its file, or ""
  std::string out;                   ///< absent, or empty, or with `force` an older export
  bool force = false;                ///< replaces an older export once the new one is complete
  model::Config config;              ///< resolved
  std::int64_t max_shard_bytes = 0;  ///< 0: one file; a tensor is never split
  std::string dtype = "f32";         ///< f32, bf16, f16
  MergedWeights merged = {};         ///< read instead of the tensors in `weights`, if it has a reader
};

struct Exported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::int64_t files = 0;          ///< of weights
  std::vector<std::string> notes;  ///< about the tokenizer and the biases
};

/// Throws Error(deck, input or write).
Exported export_folder(const ExportOrder& order, const ParameterTable& table);

/// Writes the parameters of a weights file or a checkpoint's state as one plain HDF5 weights file.
///   /parameters/<name>   f32, the same bits; the same description, step and tokens
/// Streams from order.weights, which is verified already, to order.out. Throws Error(deck, input or write).
Exported export_weights(const ExportOrder& order, const ParameterTable& table);

}  // namespace kozero::huggingface
