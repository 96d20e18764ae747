// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_files.hpp: the files of a run: its weights file, the search for weights by a path, and the point where a run
// resumes.
//   a run's folder:  deck.toml (resolved)  weights.h5  tokenizer.json  metrics.jsonl  log.txt  checkpoints
//   checkpoint.resume = none | auto | PATH
// Rank 0 looks for files; all ranks get one answer.
#pragma once
#include <string>
#include <vector>

#include <kozero/train/checkpoint.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/deck.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::train {

using io::kDeckFile;
inline constexpr const char* kWeightsFile = "weights.h5";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerModelFile =
    "tokenizer.model";  ///< in its place where it is a SentencePiece model

/// This rank's shards of all units.
std::vector<DeviceRange> shards_of(const dist::DistributedArray<float>& master);

/// Those that this rank writes to files, so that every element has one writer: none but in the first group.
std::vector<DeviceRange> owned_shards(const dist::DistributedArray<float>& master);

/// Writes every rank's shards. Collective. Throws Error(write).
void save_weights(const std::string& path, const Engine& engine, dist::Communicator& comm,
                  const io::WeightsDescription& description);

/// Fills every rank's shards and publishes them. Collective. Throws Error(input).
io::WeightsDescription load_weights(const std::string& path, Engine& engine, dist::Communicator& comm);

// What a path names, for every command that takes one.
//   a folder  with manifest.json a checkpoint, with config.json and no deck.toml a Hugging Face model, else a run
//   a file    state.h5: its checkpoint; a deck (.toml): the run whose weights lie beside it, else the newest one in its
//             run.dir; any other: weights

struct NamedPath {
  enum class Kind { nothing, run, checkpoint, weights_file, hugging_face };
  Kind kind = Kind::nothing;
  std::string path;  ///< of the folder, or of the weights file
};

/// Looks on this process alone. Throws Error(deck or input) where a deck cannot be read.
NamedPath named_path(const std::string& given);

/// The newest checkpoint of a run that has a manifest, "" where there is none.
std::string newest_checkpoint(const std::string& run_folder);

/// Trained weights and the files that come with them.
struct RunFiles {
  std::string folder;     ///< where they lie
  std::string weights;    ///< weights.h5, or a checkpoint's state.h5
  std::string deck;       ///< resolved, every shape in it; "" where the weights lie alone
  std::string tokenizer;  ///< "" where the data were synthetic, or the weights lie alone
};

/// latest: of a run its weights file or its newest checkpoint, whichever is of the later step. best: its checkpoint
/// with the lowest validation loss.
enum class Which { latest, best };

/// Those of a run, a weights file or a checkpoint; the best ones of a run. Throws Error(deck) with what is missing and
/// how it is made.
RunFiles find_run(const std::string& path, Which which = Which::latest);

// Where a run goes on from, by checkpoint.resume.
//   none   from the beginning, in a new folder
//   auto   from the newest complete checkpoint in run.dir, in that folder; where it holds none, from the beginning;
//          where all it holds are broken, refused
//   PATH   from a checkpoint, a run's newest, or a weights file; in its folder where that is run.dir, else in a new one

struct ResumePoint {
  std::string folder;               ///< the run's folder to continue; "": a new one
  std::string source;               ///< the checkpoint or weights file; "": from the beginning
  std::string state_file;           ///< in it
  io::CheckpointRecord record;      ///< of a weights file: what it says, otherwise this run's
  std::vector<std::string> skipped; ///< broken checkpoints, by name with the reason
};

/// `mine` is this run's record, before its first step. Rank 0 looks for all. Collective. Throws Error, seen by all
/// ranks: where a named checkpoint or every checkpoint is broken, and where the deck disagrees with it, naming each
/// difference.
ResumePoint find_resume_point(const io::Deck& deck, const io::CheckpointRecord& mine, dist::Communicator& comm);

/// Both paths are there and name one folder, links followed.
bool same_folder(const std::string& a, const std::string& b);

}  // namespace kozero::train
