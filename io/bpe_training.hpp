// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bpe_training.hpp: learns the merges of byte-level BPE from a corpus.
//   repeat: join the pair of neighbours with the largest count over all pieces; of equal counts the smaller ids win
// Pieces are counted first, so memory follows the number of different pieces; when there are too many, rare ones are
// dropped, and of a large corpus every k-th block is read. The same corpus gives the same merges, everywhere.
// Sennrich, Haddow, Birch 2016, arXiv:1508.07909.
#pragma once
#include <map>

#include <kozero/io/bpe_tokenizer.hpp>

namespace kozero::io {

using PieceCounts = std::map<std::string, std::int64_t>;

/// At most `num_merges` merges; fewer where no pair is met twice any more.
std::vector<Merge> learn_merges(const PieceCounts& pieces, int num_merges);

/// A tokenizer of at most `vocab` ids, learnt from at most 64 MiB of the corpus.
BpeTokenizer train_bpe(const std::vector<TextFile>& corpus, int vocab);

}  // namespace kozero::io
