// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_training.hpp: a byte-level BPE tokenizer learnt from a corpus.
//   corpus -> pieces (split pattern) -> counts -> merges
// Memory follows the number of different pieces: where there are too many, rare ones are dropped; of a large corpus
// every k-th block is read. The same corpus gives the same tokenizer, everywhere.
#pragma once
#include <vector>

#include <kozero/io/bpe_tokenizer.hpp>

namespace kozero::io {

/// A tokenizer of at most `vocab` ids, learnt from at most 64 MiB of the corpus.
BpeTokenizer train_bpe(const std::vector<TextFile>& corpus, int vocab);

}  // namespace kozero::io
