// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// import_folder.hpp: a Hugging Face folder as a run's folder, for eval, generate and further training.
//   HF_FOLDER/  config.json  safetensors  [tokenizer]   ->   OUT/  weights.h5  deck.toml  [tokenizer]
// Tensors stream in pieces, on one process; f16 and bf16 become f32 exactly. Everything of the folder is checked
// against the network that config.json names before anything is written.
#pragma once
#include <string>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>

namespace kozero::exchange {

struct ImportOrder {
  std::string folder;
  std::string out;             ///< not there, or empty
  model::Config config;        ///< read_config's
  std::string description;     ///< of the model, for the weights file
};

struct Imported {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of weights.h5's tensors
  std::string remark;      ///< why there is no tokenizer; "" where there is one
};

/// Throws Error(deck, input or write).
Imported import_folder(const ImportOrder& order, const ParameterTable& table);

}  // namespace kozero::exchange
