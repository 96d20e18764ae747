// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint_folders.hpp: the checkpoints of a run's folder: step_000000100, step_000000200, ...
// A checkpoint's step is what its manifest says; a folder that was copied or renamed may have another name.
// What is being written or removed is called .partial and counts for nothing; a crash at any moment leaves either whole
// checkpoints or such leftovers.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/io/checkpoint.hpp>

namespace kozero::io {

/// "RUN/step_000001000"
std::string checkpoint_folder(const std::string& run_folder, std::int64_t step);

/// By name alone, newest first; none where the run's folder is not there. Throws Error(input).
std::vector<std::string> checkpoints_in(const std::string& run_folder);

struct FoundCheckpoint {
  std::string folder;
  Manifest manifest;
};

/// The newest one, by the steps of the manifests, whose every byte is as it was written; each broken one before it adds
/// its reason to `skipped`. Rank 0 looks, all ranks verify. Collective. Throws Error, seen by all ranks.
std::optional<FoundCheckpoint> newest_complete(dist::Communicator& comm, const std::string& run_folder,
                                               std::vector<std::string>& skipped);

/// The checkpoint whose manifest has the lowest validation loss, of equal ones the earliest; none where no manifest has
/// one. One process. Its bytes are not verified. Throws Error(input) where the folder cannot be read.
std::optional<FoundCheckpoint> best_checkpoint(const std::string& run_folder);

/// Removes leftovers of writing and all but the newest `keep` (0: all stay) and `best`, a path as best_checkpoint gives
/// it. One process. Throws Error(write).
void prune_checkpoints(const std::string& run_folder, std::int64_t keep, const std::string& best = "");

/// Renames the checkpoints that are named after a later step than `step`, which a continued run is about to write anew,
/// to *.old, *.old-2 ...; but not `loaded`, from which it goes on. Returns the new names. One process. Throws
/// Error(write).
std::vector<std::string> set_aside_after(const std::string& run_folder, std::int64_t step,
                                         const std::string& loaded = "");

/// Gives `loaded`, a checkpoint of `step`, the name of its step where it lies in `run_folder` under that of another;
/// what has that name is set aside. Returns its path. One process. Throws Error(write).
std::string name_by_step(const std::string& run_folder, const std::string& loaded, std::int64_t step);

}  // namespace kozero::io
