// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unread_keys.hpp: the keys of config.json from which no network is built: those that change the logits are refused,
// those that transformers does not read either are named in a note. docs/weights.md has the list.
#pragma once
#include <string>
#include <vector>

#include "src/huggingface/config_keys.hpp"

namespace kozero::huggingface {

/// Refuses values of keys that change the logits of every network of transformers. A window also cuts the cache of a
/// network whose own attention does not read it.
void check_common_keys(const ConfigKeys& keys);

/// Call after all keys are read. "config.json: logit_scale: not read, and transformers' llama does not read it either".
void note_unread_keys(const ConfigKeys& keys, const std::string& path, const std::string& type,
                      std::vector<std::string>& notes);

}  // namespace kozero::huggingface
