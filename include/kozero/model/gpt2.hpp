// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// gpt2.hpp: GPT-2: learned positions, LayerNorm, biases everywhere, GELU, dropout; Hugging Face's tensor names.
// Radford et al. 2019, "Language models are unsupervised multitask learners".
#pragma once
#include <kozero/model/model.hpp>

namespace kozero::model {

/// ffn defaults to 4C; key/value heads are the heads.
void resolve_gpt2(Config& config);

template <class Scalar>
std::unique_ptr<Model<Scalar>> make_gpt2(const Config& config);

}  // namespace kozero::model
