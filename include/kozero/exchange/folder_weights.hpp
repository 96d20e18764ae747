// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder_weights.hpp: the tensors of a Hugging Face folder, read straight into any parts of a model's units.
//   HF_FOLDER/ safetensors  ->  [begin, begin + extent) of a unit, f32 (f16 and bf16 exactly)
// Every rank opens the folder by itself and reads the bytes of its own slices alone; no copy is made in between. That
// ranks, or the times at which they read, show them different files, fingerprint() and require_unchanged() tell.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/io/tensor_group.hpp>
#include <kozero/model/config.hpp>

namespace kozero::exchange {

/// The folder's config.json, where the folder has tensors enough for its layers: a config of ten thousand layers costs
/// nothing. Throws Error(input).
model::Config read_folder_config(const std::string& folder);

class FolderWeights {
 public:
  /// Compares all names, shapes and types with the network of `config` and its `table`, which must outlive this.
  /// Throws Error(input): file, tensor and reason.
  FolderWeights(const std::string& folder, const model::Config& config, const ParameterTable& table);

  /// Fills the slice, pads with zeros. Throws Error(input).
  void read(const io::UnitSlice<float>& slice) const;

  /// SafetensorsFolder's.
  [[nodiscard]] std::string fingerprint() const { return folder_.fingerprint(); }
  void require_unchanged() const { folder_.require_unchanged(); }

 private:
  const ParameterTable& table_;
  io::SafetensorsFolder folder_;
  std::vector<io::StoredTensor> tensors_;  // by row
};

}  // namespace kozero::exchange
