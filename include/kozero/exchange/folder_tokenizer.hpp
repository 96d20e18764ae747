// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder_tokenizer.hpp: the tokenizer of a Hugging Face folder, where KoZeRO can read it and its ids are the model's.
//   tokenizer.json (byte-level BPE), or else tokenizer.model (SentencePiece)
#pragma once
#include <cstdint>
#include <string>

namespace kozero::exchange {

struct FolderTokenizer {
  std::string path;       ///< "" where there is none
  std::string reason;     ///< then: why
  bool is_there = false;  ///< some file is, readable or not
};

/// `vocab`: the model's ids.
FolderTokenizer tokenizer_of(const std::string& folder, std::int64_t vocab);

}  // namespace kozero::exchange
