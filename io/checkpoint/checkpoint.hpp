// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp: one checkpoint, a folder that is complete or absent, and the checkpoints of a run's folder.
// A checkpoint is written under a temporary name and renamed when it is complete; verification compares every byte with
// the manifest. Collective functions throw Error on all ranks.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/tensor_groups.hpp"

namespace kozero::io {

// One checkpoint, a folder that is complete or absent.
//   step_000001000/   state.h5   further small files   manifest.json
// Written as step_000001000.partial: state.h5, the small files, the manifest last, each synced; then one rename and a
// sync of the parent. Every rank writes and hashes its own share; after each phase the ranks agree on the worst status.
// libhdf5 reads only bytes that the manifest vouches for. It guards against accidents, not against malice.

inline constexpr const char* kStateFile = "state.h5";
inline constexpr const char* kManifestFile = "manifest.json";

struct CheckpointContents {
  CheckpointRecord record;
  std::vector<TensorGroup<const float>> groups;  ///< parameters first
  std::map<std::string, std::string> texts;      ///< small files: name -> bytes, rank 0's
  Ties ties = {};                                ///< of the parameters
};

/// What a checkpoint takes on its file system, a margin for metadata included.
std::int64_t checkpoint_bytes(const ParameterTable& table, const CheckpointContents& contents);

/// Attempts to read the newest checkpoint, each of which a trainer may remove meanwhile.
inline constexpr int kMostReads = 20;

/// Returns the bytes of the state. Collective; makes no MPI call but control messages. Throws Error(write), seen by all
/// ranks, with path, reason, the bytes it takes and those free, and leaves nothing behind: where the disk is too full
/// for it, before a byte is written; if a call fails or the folder exists already. Rank 0 calls `may_publish`
/// before it makes the folder and before the folder gets its name; it throws to end the save.
std::int64_t write_checkpoint(
    distributed::Communicator& comm, const std::string& folder, const ParameterTable& table,
    const CheckpointContents& contents, const std::function<void()>& may_publish = [] {});

/// The manifest on its own, read on this process. Throws Error(input).
Manifest read_manifest(const std::string& folder);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
Manifest read_manifest(distributed::Communicator& comm, const std::string& folder);

/// Reads the manifest and compares every byte of every file with it; all ranks must find rank 0's manifest. Collective.
/// Throws Error(input), seen by all ranks.
Manifest verify_checkpoint(distributed::Communicator& comm, const std::string& folder);

// What was saved under a path, be it a checkpoint's folder or a weights file.
// libhdf5 opens the state's file after verify() alone.

struct SavedState {
  std::string path;
  bool is_checkpoint = false;
  Manifest manifest;  ///< of a weights file: the record's step, tokens and model alone

  [[nodiscard]] std::string state_file() const;  ///< the HDF5 file of the tensors
};

/// The manifest or header on its own, read on this process. Throws Error(input).
SavedState read_saved_state(const std::string& path);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
SavedState read_saved_state(distributed::Communicator& comm, const std::string& path);

/// Compares every byte with the hashes in the manifest or header; all ranks must find rank 0's. Collective. Throws
/// Error(input), seen by all ranks.
SavedState verify(distributed::Communicator& comm, const std::string& path);

// The checkpoints of a run's folder: step_000000100, step_000000200, ...
// A checkpoint's step is what its manifest says; a folder that was copied or renamed may have another name.
// What is being written or removed is called .partial and counts for nothing; a crash at any moment leaves either whole
// checkpoints or such leftovers.

/// "RUN/step_000001000"
std::string checkpoint_folder(const std::string& run_folder, std::int64_t step);

/// By name alone, newest first; none where the run's folder is not there. Throws Error(input).
std::vector<std::string> checkpoints_in(const std::string& run_folder);

struct FoundCheckpoint {
  std::string folder;
  Manifest manifest;
};

/// The newest one, by the steps of the manifests, whose every byte is as it was written; each broken one before it adds
/// its reason to `skipped`. If a trainer removed one meanwhile, rank 0 looks again. Rank 0 looks, all ranks verify.
/// Collective. Throws Error, seen by all ranks.
std::optional<FoundCheckpoint> newest_complete(distributed::Communicator& comm, const std::string& run_folder,
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
