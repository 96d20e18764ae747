// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.hpp: low-rank adapters in the folder of Hugging Face's PEFT, and a base with adapters added.
//   FOLDER/  adapter_config.json  adapter_model.safetensors  [kozero_base.json: the identity of the base]
//   base_model.model.MODULE.lora_A.weight (r, I)    .lora_B.weight (O, r)    MODULE as transformers names it
//   merged: W + s B A, for weights stored as (O, I); W + s A^T B^T for GPT-2's, stored as (I, O)
// Adapters with a value that is not finite are neither read nor written; those whose B are all zero are not written.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/model/config.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/safetensors/reader.hpp"

namespace kozero::huggingface {

/// A PEFT folder's adapters. Compare the tensors with a network by AdapterWeights.
struct AdapterDescription {
  model::Lora lora;
  std::string base;  ///< the identity of the base with which they were trained; "": unknown
  std::string note;  ///< names in target_modules without tensors; "": none
};

/// Reads the config and the names of the tensors. Throws Error(input), one line: file, key or tensor, and reason.
AdapterDescription read_adapter(const std::string& folder);

/// The tensors of a PEFT folder, all of them finite, for the adapters of `table`.
class AdapterWeights {
 public:
  /// Compares all names, shapes and types with the adapters of `table`, which must outlive this. Throws Error(input):
  /// file, tensor and reason.
  AdapterWeights(const std::string& folder, const model::Config& config, const ParameterTable& table);

  /// Fills the shard of a unit of adapters, pads with zeros. Throws Error(input).
  void read(const io::RangeValues<float>& shard) const;

  [[nodiscard]] std::string fingerprint() const { return file_.fingerprint(); }
  void require_unchanged() const { file_.require_unchanged(); }

 private:
  const ParameterTable& table_;
  io::SafetensorsFile file_;
  std::vector<io::StoredTensor> tensors_;  // by tensor of the table; none for the base
};

/// The base of exported adapters.
struct BaseOfAdapters {
  std::string name;      ///< base_model_name_or_path
  std::string identity;  ///< its hash
};

/// Writes the adapters in order.weights, which is verified already, as a PEFT folder. order.config has the adapters;
/// `table` is theirs with the base. Throws Error(deck, input or write).
Exported export_adapters(const ExportOrder& order, const ParameterTable& table, const BaseOfAdapters& base);

/// Reads the base's tensors with the adapters added: W + s B A in double, rounded once to f32. `table` is that of
/// `config` with its adapters; all readers count its tensors. Copies the adapters. Throws Error(input) like
/// export_adapters, `path` being the adapters' file.
TensorReader merged_tensors(const model::Config& config, const ParameterTable& table, const TensorReader& base,
                            const TensorReader& adapters, const std::string& path);

/// The identity of a base by its tensors: that of train::AdapterBase, for the same values.
std::string base_identity(const ParameterTable& table, const TensorReader& base);

/// The parameters of a weights file or of a checkpoint's state, whose names and shapes are those of `table`.
TensorReader file_tensors(const std::string& file, const ParameterTable& table);

/// The tensors of a Hugging Face folder in the order of `table`, which has no adapters. Throws Error(input).
TensorReader folder_tensors(const std::string& folder, const model::Config& config, const ParameterTable& table);

}  // namespace kozero::huggingface
