// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// import.hpp: a Hugging Face folder: its tensors, its tokenizer, a deck made from it, and its conversion to a run's
// folder.
//   HF_FOLDER/  config.json  safetensors  [tokenizer]   ->   OUT/  weights.h5  deck.toml  [tokenizer]
// Every rank opens the folder and reads only the bytes of its own shards, straight into parts of units; f16 and bf16
// become f32 exactly. import_folder streams tensors in chunks on one process. It checks the whole folder against the
// network of config.json before it writes anything.
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

/// The folder's config.json. Throws Error(input), also if the folder has too few tensors for the config's layers: a
/// false config of many layers is rejected before memory is allocated for its table. `notes` gets a line for what is in
/// the folder and not used: keys of config.json, and shards beside a single file.
model::Config read_folder_config(const std::string& folder, std::vector<std::string>* notes = nullptr);

/// The tensors of a Hugging Face folder. fingerprint() shows whether ranks see different files, require_unchanged()
/// whether the files changed after they were opened.
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

/// The tokenizer of a Hugging Face folder, if KoZeRO can read it and its ids fit the model.
///   tokenizer.json (byte-level BPE), or else tokenizer.model (SentencePiece)
struct FolderTokenizer {
  std::string path;       ///< "" if there is none
  std::string reason;     ///< why there is none
  bool is_there = false;  ///< the folder has a tokenizer's file, readable or not
};

/// `vocab`: the model's ids.
FolderTokenizer tokenizer_of(const std::string& folder, std::int64_t vocab);

/// The deck of an imported model: every key of the model from config.json, the others short and plain. `tokenizer`: the
/// path of its file, or "". Users of the deck set data.text, or data.tokens if there is no tokenizer.
io::Deck imported_deck(const model::Config& config, const std::string& run_dir, const std::string& tokenizer);

struct ImportOrder {
  std::string folder;
  std::string out;          ///< absent, or empty
  model::Config config;     ///< from read_config
  std::string description;  ///< of the model, for the weights file
};

struct Imported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of weights.h5's tensors
  std::string dtypes;      ///< of the tensors that were read: "bf16", "bf16 and f32"
  std::string remark;      ///< why there is no tokenizer; "" if there is one
};

/// Throws Error(deck, input or write).
Imported import_folder(const ImportOrder& order, const ParameterTable& table);

}  // namespace kozero::huggingface
