// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_names.hpp: the table's tensor names and those of Hugging Face's files, which differ for GPT-2 alone.
//   GPT2LMHeadModel writes "transformer.h.0...", the published GPT-2 has "h.0..."; lm_head never has the prefix
#pragma once
#include <map>
#include <string>

#include <kozero/core/parameter_table.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/model/config.hpp>

namespace kozero::exchange {

/// The name that transformers' own files have for the table's tensor.
std::string exported_name(const model::Config& config, const std::string& name);

/// Where each row of the table lies in the folder, in the table's order. Shapes and names must be the model's, no
/// tensor may be missing and none left over, but for buffers of old versions and the second copy of a tied embedding.
/// Throws Error(input) naming file, tensor and reason.
std::vector<io::StoredTensor> tensors_of(const model::Config& config, const ParameterTable& table,
                                         const io::SafetensorsFolder& folder);

}  // namespace kozero::exchange
