// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sentencepiece_check.hpp: a SentencePiece model's bytes, checked before the library reads them.
//   ModelProto (protobuf): 1 pieces {1 text, 2 score, 3 type}  2 trainer {3 kind, 24 blanks behind words}
//   3 normaliser {2 character map, 4 fewer blanks, 5 blanks become U+2581}  5 denormaliser
// The library follows the character map's double-array trie without bounds; here every transition is shown to stay
// inside and every value to point at a text that ends. Kudo, Richardson 2018, arXiv:1808.06226,
// sentencepiece_model.proto; darts-clone for the layout of the trie's units.
#pragma once
#include <string>
#include <string_view>

namespace kozero::io {

/// Whether a file is such a model rather than JSON.
bool looks_like_sentencepiece(std::string_view bytes);

/// Whether words can be encoded one by one, each with the blanks before it, and give the ids of the whole text: the
/// model merges by rank (BPE), leaves characters and blanks as they are, and no piece goes on from a word into a blank.
/// Throws Error(input) naming `path` and what is wrong.
bool check_sentencepiece(const std::string& path, std::string_view bytes);

}  // namespace kozero::io
