// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// corpus_epoch.hpp: the files of an epoch of a corpus that grows (data.grow), as a text that checkpoints record.
//   {"epoch": 1, "steps_before": 40, "found": true, "files": [["/corpus/a.txt", 1200, 0], ...]}
// with each file's path, bytes and source. An epoch that is not "found" yet begins with the files of the epoch before,
// and has those behind them that are there too.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/data/text_files.hpp>

namespace kozero::data {

struct CorpusEpoch {
  std::int64_t epoch = 0;
  std::int64_t steps_before = 0;  ///< of earlier epochs
  bool is_found = false;          ///< whether `files` are this epoch's; else the epoch before's
  std::vector<TextFile> files;    ///< by path, bytes and source
};

/// The epoch of a text; of "", epoch 0, not found. Throws Error(input) for another text.
CorpusEpoch corpus_epoch_of(const std::string& text);
std::string text_of(const CorpusEpoch& epoch);

/// The epoch behind a found one that ends with step `steps_before`; not found.
CorpusEpoch epoch_after(CorpusEpoch epoch, std::int64_t steps_before);

/// Finds the epoch's files. Returns how many of them the epoch before did not have, 0 for an epoch that is found
/// already or is the first. Throws Error(input) as find_text(), and naming a file of the epoch or of the one before
/// that is gone or has another size.
std::int64_t find_epoch(CorpusEpoch& epoch, const std::vector<TextSource>& sources, SkippedFiles& skipped);

}  // namespace kozero::data
