// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_files.hpp: the files of a run: its weights file, the search for weights by a path, and the point from which a run
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
using io::kTokenizerFile;
using io::kTokenizerModelFile;
using io::kWeightsFile;

/// This rank's shards of all units.
std::vector<DeviceRange> shards_of(const Evaluator& evaluator);

/// The shards that this rank writes to files: all in the first group, none in other groups, so that every element has
/// one writer.
std::vector<DeviceRange> owned_shards(const Evaluator& evaluator);

/// Writes every rank's shards to kWeightsFile in the folder. Collective. Throws Error(write).
void save_weights(const io::HeldFolder& folder, const Evaluator& evaluator, distributed::Communicator& comm,
                  const io::WeightsDescription& description);

/// Fills every rank's shards and publishes them. Collective. Throws Error(input).
io::WeightsDescription load_weights(const std::string& path, Evaluator& evaluator, distributed::Communicator& comm);

/// The meaning of a path, for every command that takes one.
///   a folder  with manifest.json a checkpoint, with config.json and no deck.toml a Hugging Face model, else a run
///   a file    state.h5: its checkpoint; any other: weights
///             a deck (.toml): the run whose weights are in the deck's folder, else the newest run in its run.dir
struct NamedPath {
  enum class Kind { nothing, run, checkpoint, weights_file, hugging_face };
  Kind kind = Kind::nothing;
  std::string path;  ///< path of the folder, or of the weights file
};

/// Looks at files on this process alone. Throws Error(deck or input) if a deck cannot be read.
NamedPath named_path(const std::string& given);

/// A run's newest checkpoint that has a manifest, "" if there is none.
std::string newest_checkpoint(const std::string& run_folder);

/// Trained weights and the files that belong to them.
struct RunFiles {
  std::string folder;     ///< folder of the files
  std::string weights;    ///< weights.h5, or a checkpoint's state.h5
  std::string deck;       ///< resolved, with every shape; "" for weights without a deck
  std::string tokenizer;  ///< "" for synthetic data, or weights without a tokenizer
};

/// latest: a run's weights file or newest checkpoint, whichever has the later step. best: the run's checkpoint with the
/// lowest validation loss.
enum class Which { latest, best };

/// The files of a run (the tokenizer's is the run's own), a weights file or a checkpoint. Which::best is for runs.
/// Throws Error(deck) saying what is missing and how to make it.
RunFiles find_run(const std::string& path, Which which = Which::latest);

/// The names of the checkpoints of the run that `path` names; "" if it names no run. Throws nothing. One process.
std::string checkpoints_of(const std::string& path) noexcept;

/// Calls find() again as long as it fails and the run's checkpoints changed meanwhile. One process.
template <class Find>
auto find_beside_trainer(const std::string& path, const Find& find) {
  for (int attempt = 1;; ++attempt) {
    const std::string before = checkpoints_of(path);
    try {
      return find();
    } catch (const Error&) {
      if (attempt == io::kMostReads || checkpoints_of(path) == before) throw;
    }
  }
}

/// Rethrows `problem`, met while the checkpoint `read` was read, unless `path` is a run whose trainer has removed that
/// checkpoint since; always after the last of io::kMostReads attempts. Collective.
void require_removed(distributed::Communicator& comm, const std::string& path, const std::string& read, int attempt,
                     const Error& problem);

/// Reads a run's newest checkpoint while the run's trainer removes older ones.
///   read_newest(comm, "runs/x", [&] { return source.path; }, [&] { load(source); }, [&] { source = find(); });
/// Calls read(). If that fails and the checkpoint found() is gone, calls find_next() and reads again. Collective.
template <class Found, class Read, class FindNext>
void read_newest(distributed::Communicator& comm, const std::string& path, const Found& found, const Read& read,
                 const FindNext& find_next) {
  for (int attempt = 1;; ++attempt) {
    try {
      return read();
    } catch (const Error& problem) {
      require_removed(comm, path, found(), attempt, problem);
    }
    find_next();
  }
}

/// The point from which a run starts, by checkpoint.resume.
///   none   from the beginning, in a new folder
///   auto   from the newest complete checkpoint in run.dir, in that folder; without checkpoints, from the beginning;
///          refused if all checkpoints are broken
///   PATH   from a checkpoint, a run's newest checkpoint, or a weights file; continues the folder of PATH if it is
///          run.dir, else starts a new folder
struct ResumePoint {
  std::string folder;                ///< the run's folder to continue; "": a new one
  std::string source;                ///< the checkpoint or weights file; "": from the beginning
  std::string state_file;            ///< state file in `source`
  io::CheckpointRecord record;       ///< the source's; for a weights file, what it lacks is this run's
  std::vector<std::string> skipped;  ///< broken checkpoints, by name with the reason
};

/// `mine` is this run's record, before its first step. Collective; rank 0 looks at the files. Throws Error, seen by all
/// ranks, if a named checkpoint or every checkpoint is broken, or if the deck disagrees with the checkpoint, naming
/// each difference.
ResumePoint find_resume_point(const io::Deck& deck, const io::CheckpointRecord& mine, distributed::Communicator& comm);

/// The record of the newest checkpoint from which the deck's run goes on; of step 0 if it begins anew, or if nothing
/// can be read. A guess, on this process alone: find_resume_point() decides.
io::CheckpointRecord recorded_position(const io::Deck& deck) noexcept;

/// Whether both paths exist and name the same folder, after following links.
bool same_folder(const std::string& a, const std::string& b);

}  // namespace kozero::train
