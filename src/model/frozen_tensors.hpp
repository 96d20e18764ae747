// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// frozen_tensors.hpp: the tensors that a run does not train (optim.freeze): patterns of tensor names.
//   h.0.*    * stands for any characters      transformer.wte.weight    with or without the architecture's prefix
// A frozen vocabulary is a unit of its own, so that positions or norms beside it do not give it a gradient's memory.
#pragma once
#include <string>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>

namespace kozero::model {

/// Whether a pattern of config.freeze matches the tensor's name, with or without the architecture's prefix
/// (Architecture::prefix).
bool is_frozen(const Config& config, const std::string& tensor);

/// Freezes the tensors that config.freeze names. Throws Error(deck) for a pattern that matches none, with the nearest
/// name, and if no tensor is left to train.
void freeze_tensors(ParameterTable& table, const Config& config);

}  // namespace kozero::model
