// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sentencepiece_check.hpp: a SentencePiece model's bytes, checked before the library reads them.
//   ModelProto (protobuf): 1 pieces {1 text, 2 score, 3 type}  2 trainer  3 normaliser {2 character map}  5 denormaliser
// The library follows the character map's double-array trie without bounds; here every transition is shown to stay inside
// and every value to point at a text that ends. Kudo, Richardson 2018, arXiv:1808.06226, sentencepiece_model.proto;
// darts-clone for the layout of the trie's units.
#pragma once
#include <string>
#include <string_view>

namespace kozero::io {

/// Whether a file is such a model rather than JSON.
bool looks_like_sentencepiece(std::string_view bytes);

/// Throws Error(input) naming `path` and what is wrong.
void check_sentencepiece(const std::string& path, std::string_view bytes);

}  // namespace kozero::io
