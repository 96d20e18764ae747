// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nfc.hpp: Unicode normalisation form C (canonical composition), which Qwen's tokenizers apply to their text.
//   "e" U+0301  ->  U+00E9            text that is already composed, such as ASCII and Latin-1, is left as it is
// Unicode Standard Annex 15; by utf8proc. As Hugging Face's tokenizers, whose tables are those of Unicode 9: marks that
// came later keep their place.
#pragma once
#include <string>
#include <string_view>

namespace kozero::io {

/// The text in form C. Bytes that are not UTF-8 are kept, and nothing composes across them.
std::string to_nfc(std::string_view text);

}  // namespace kozero::io
