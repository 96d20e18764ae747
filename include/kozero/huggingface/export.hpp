// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// export.hpp: a weights file or a checkpoint as a Hugging Face folder, or as one plain HDF5 weights file.
//   OUT/  config.json  [tokenizer files]  model.safetensors, or shards with model.safetensors.index.json
// Tensors stream in chunks on one process, so memory does not grow with the model.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>

namespace kozero::huggingface {

// A weights file or a checkpoint's state as a folder that Hugging Face's transformers loads with no
// code.
//   OUT/  config.json  [tokenizer.json | tokenizer.model  tokenizer_config.json]
//         model.safetensors, or shards with model.safetensors.index.json
// Tensors stream from HDF5 in chunks, on one process: memory is a chunk, whatever the model. f32 values are copied in
// bits; bf16 and f16 are the nearest, ties to even. A tied head is left out, as transformers does.

struct ExportOrder {
  std::string weights;               ///< weights.h5, or state.h5
  std::string tokenizer;             ///< its file, or ""
  std::string out;                   ///< not there, or empty, or with `force` an older export
  bool force = false;                ///< an older export is replaced, once the new one is complete
  model::Config config;              ///< resolved
  std::int64_t max_shard_bytes = 0;  ///< 0: one file; a tensor is never cut
  std::string dtype = "f32";         ///< f32, bf16, f16
};

struct Exported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::int64_t files = 0;          ///< of weights
  std::vector<std::string> notes;  ///< about the tokenizer
};

/// Throws Error(deck, input or write).
Exported export_folder(const ExportOrder& order, const ParameterTable& table);

// The parameters of a weights file or a checkpoint's state alone, as one plain HDF5 weights file.
//   /parameters/<name>   f32, in bits; description, step and tokens as they were

/// Streams from order.weights, verified before, to order.out. Throws Error(deck, input or write).
Exported export_weights(const ExportOrder& order, const ParameterTable& table);

}  // namespace kozero::huggingface
