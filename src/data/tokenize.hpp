// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenize.hpp: a corpus becomes the shards of both sides, encoded on several threads, written in order.
//   read blocks -> side of each -> encode on ranks and threads -> write in the order of the corpus -> shards,
//   progress.json
// Every rank reads the corpus. Of a batch of blocks rank r of n encodes those with number r modulo n, and rank 0 writes
// all. The bytes of the shards do not depend on ranks and threads, nor on where an earlier process was killed:
// progress.json has the shards that are finished, and a later process reads all text again but encodes only what is
// behind them.
#pragma once
#include <string>
#include <vector>

#include <kozero/data/prepare.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::data {

/// In the folder of an unfinished process. Its fingerprint is of what is tokenized, and how.
inline constexpr const char* kTokenizeProgress = "progress.json";

/// Writes the shards and their description's numbers; the folder exists, and may have what a killed process left.
/// Collective over `comm`; the numbers are rank 0's. Throws Error(input | write), seen by all ranks.
PreparedTokens tokenize(const PrepareOrder& order, const std::vector<TextFile>& files, const io::Tokenizer& tokenizer,
                        const std::string& folder, const std::string& fingerprint, distributed::Communicator& comm);

}  // namespace kozero::data
