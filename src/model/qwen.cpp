// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/model/llama.hpp>
#include <kozero/model/qwen.hpp>

namespace kozero::model {

void resolve_qwen2(Config& config) {
  config.qkv_bias = true;
  resolve_llama(config);
}

void resolve_qwen3(Config& config) {
  config.qk_norm = true;
  resolve_llama(config);
}

}  // namespace kozero::model
