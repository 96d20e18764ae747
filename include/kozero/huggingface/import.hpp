// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// import.hpp: a Hugging Face folder: its tensors, its tokenizer, a deck made from it, and its conversion to a run's
// folder.
//   HF_FOLDER/  config.json  safetensors  [tokenizer]   ->   OUT/  weights.h5  deck.toml  [tokenizer]
// Every rank reads the bytes of its own shards; f16 and bf16 become f32 exactly.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/deck/deck.hpp"
#include "io/safetensors/reader.hpp"

namespace kozero::huggingface {

// The tensors of a Hugging Face folder, read straight into any parts of a model's units.
//   HF_FOLDER/ safetensors  ->  [begin, begin + extent) of a unit, f32 (f16 and bf16 exactly)
// Every rank opens the folder by itself and reads the bytes of its own shards alone; no copy is made in between. That
// ranks, or the times at which they read, show them different files, fingerprint() and require_unchanged() tell.

/// The folder's config.json, where the folder has tensors enough for its layers: a config of ten thousand layers costs
/// nothing. Throws Error(input).
model::Config read_folder_config(const std::string& folder);

class FolderWeights {
 public:
  /// Compares all names, shapes and types with the network of `config` and its `table`, which must outlive this.
  /// Throws Error(input): file, tensor and reason.
  FolderWeights(const std::string& folder, const model::Config& config, const ParameterTable& table);

  /// Fills the shard, pads with zeros. Throws Error(input).
  void read(const io::RangeValues<float>& shard) const;

  /// SafetensorsFolder's.
  [[nodiscard]] std::string fingerprint() const { return folder_.fingerprint(); }
  void require_unchanged() const { folder_.require_unchanged(); }

 private:
  const ParameterTable& table_;
  io::SafetensorsFolder folder_;
  std::vector<io::StoredTensor> tensors_;  // by row
};

// The tokenizer of a Hugging Face folder, where KoZeRO can read it and its ids are the model's.
//   tokenizer.json (byte-level BPE), or else tokenizer.model (SentencePiece)

struct FolderTokenizer {
  std::string path;       ///< "" where there is none
  std::string reason;     ///< then: why
  bool is_there = false;  ///< some file is, readable or not
};

/// `vocab`: the model's ids.
FolderTokenizer tokenizer_of(const std::string& folder, std::int64_t vocab);

// The deck of an imported model: its shape from config.json, the rest plain and small.
// It names no data: whoever uses it gives data.text, or data.tokens where there is no tokenizer.

/// Every key of the model is set. `tokenizer`: the path of its file, or "".
io::Deck imported_deck(const model::Config& config, const std::string& run_dir, const std::string& tokenizer);

// A Hugging Face folder as a run's folder, for eval, generate and further training.
//   HF_FOLDER/  config.json  safetensors  [tokenizer]   ->   OUT/  weights.h5  deck.toml  [tokenizer]
// Tensors stream in chunks, on one process; f16 and bf16 become f32 exactly. Everything of the folder is checked
// against the network that config.json names before anything is written.

struct ImportOrder {
  std::string folder;
  std::string out;          ///< not there, or empty
  model::Config config;     ///< read_config's
  std::string description;  ///< of the model, for the weights file
};

struct Imported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of weights.h5's tensors
  std::string dtypes;      ///< of the tensors that were read: "bf16", "bf16 and f32"
  std::string remark;      ///< why there is no tokenizer; "" where there is one
};

/// Throws Error(deck, input or write).
Imported import_folder(const ImportOrder& order, const ParameterTable& table);

}  // namespace kozero::huggingface
