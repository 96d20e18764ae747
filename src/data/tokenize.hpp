// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tokenize.hpp: a corpus becomes the shards of both sides, encoded on several threads, written in order.
//   read blocks -> side of each -> encode on threads -> write in the order of the corpus -> shards, progress.json
// The bytes of the shards do not depend on the threads, nor on where an earlier process was killed: progress.json has
// the shards that are finished, and a later process reads all text again but encodes only what is behind them.
#pragma once
#include <string>
#include <vector>

#include <kozero/data/prepare.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::data {

/// In the folder of an unfinished process. Its fingerprint is of what is tokenized, and how.
inline constexpr const char* kTokenizeProgress = "progress.json";

/// Writes the shards and their description's numbers; the folder exists, and may have what a killed process left.
/// Throws Error(input | write).
PreparedTokens tokenize(const PrepareOrder& order, const std::vector<TextFile>& files, const io::Tokenizer& tokenizer,
                        const std::string& folder, const std::string& fingerprint);

}  // namespace kozero::data
