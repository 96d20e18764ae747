// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp: one checkpoint, a folder that is complete or absent, and the checkpoints of a run's folder.
//   step_000001000/   state.h5   further small files   manifest.json
// Written as step_000001000.partial: state.h5, the small files, the manifest last, each synced; then one rename and a
// sync of the parent. Every rank writes and hashes its own share; after each phase the ranks agree on the worst status.
// libhdf5 reads only bytes whose hashes agree with the manifest. This detects accidents, not malice.
// A checkpoint's step is the step in its manifest; a copied or renamed folder may have another name. Folders that are
// being written or removed are named .partial and ignored, so that a crash leaves only whole checkpoints and leftovers.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/tensor_groups.hpp"

namespace kozero::io {

inline constexpr const char* kStateFile = "state.h5";
inline constexpr const char* kManifestFile = "manifest.json";

struct CheckpointContents {
  CheckpointRecord record;
  std::vector<TensorGroup<const float>> groups;  ///< parameters first
  std::map<std::string, std::string> texts;      ///< small files: name -> bytes, rank 0's
  Ties ties = {};                                ///< of the parameters
  ReadWatch* watch = nullptr;                    ///< follows the reads of the groups' values
};

/// Bytes of a checkpoint on its file system, with a margin for metadata.
std::int64_t checkpoint_bytes(const ParameterTable& table, const CheckpointContents& contents);

/// Attempts to read the newest checkpoint; a trainer may remove the checkpoint during each attempt.
inline constexpr int kMostReads = 20;

/// Returns the bytes of the state. Collective; makes no MPI call but control messages. Throws Error(write), seen by all
/// ranks, with path, reason, needed bytes and free bytes, and leaves nothing behind, if a call fails, the folder exists
/// already, or the disk has too little room (before a byte is written); also what contents.watch throws. Rank 0 calls
/// `may_publish` before it makes the folder and before the rename; `may_publish` throws to end the save.
std::int64_t write_checkpoint(
    distributed::Communicator& comm, const std::string& folder, const ParameterTable& table,
    const CheckpointContents& contents, const std::function<void()>& may_publish = [] {});

/// Reads only the manifest, on this process. Throws Error(input).
Manifest read_manifest(const std::string& folder);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
Manifest read_manifest(distributed::Communicator& comm, const std::string& folder);

/// Reads the manifest and compares every byte of every file with it; all ranks must find rank 0's manifest. Collective.
/// Throws Error(input), seen by all ranks.
Manifest verify_checkpoint(distributed::Communicator& comm, const std::string& folder);

/// A checkpoint's folder or a weights file. libhdf5 opens the state's file only after verify().
struct SavedState {
  std::string path;
  bool is_checkpoint = false;
  Manifest manifest;  ///< for a weights file: only the record's step, tokens and model

  [[nodiscard]] std::string state_file() const;  ///< the HDF5 file of the tensors
};

/// Reads only the manifest or header, on this process. Throws Error(input).
SavedState read_saved_state(const std::string& path);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
SavedState read_saved_state(distributed::Communicator& comm, const std::string& path);

/// Compares every byte with the hashes in the manifest or header; all ranks must find rank 0's. Collective. Throws
/// Error(input), seen by all ranks.
SavedState verify(distributed::Communicator& comm, const std::string& path);

/// "RUN/step_000001000"
std::string checkpoint_folder(const std::string& run_folder, std::int64_t step);

/// Checkpoints by name, newest first; none if the run's folder does not exist. Throws Error(input).
std::vector<std::string> checkpoints_in(const std::string& run_folder);

struct FoundCheckpoint {
  std::string folder;
  Manifest manifest;
};

/// The newest intact checkpoint, by the steps of the manifests; `skipped` gets the reason for each newer one that is
/// broken. Rank 0 searches, and searches again if a trainer removed a checkpoint meanwhile; all ranks verify.
/// Collective. Throws Error, seen by all ranks.
std::optional<FoundCheckpoint> newest_complete(distributed::Communicator& comm, const std::string& run_folder,
                                               std::vector<std::string>& skipped);

/// The checkpoint whose manifest has the lowest validation loss, the earliest of equal ones; nullopt if no manifest has
/// a loss. One process. Does not verify the bytes. Throws Error(input) if the folder cannot be read.
std::optional<FoundCheckpoint> best_checkpoint(const std::string& run_folder);

/// Removes leftovers of writing, and all checkpoints except the newest `keep` (0: all) and `best`, a path from
/// best_checkpoint. One process. Throws Error(write).
void prune_checkpoints(const std::string& run_folder, std::int64_t keep, const std::string& best = "");

/// Renames the checkpoints named after later steps than `step`, which a continued run will write again, to *.old,
/// *.old-2 ..., except `loaded`, from which it continues. Returns the new names. One process. Throws Error(write).
std::vector<std::string> set_aside_after(const std::string& run_folder, std::int64_t step,
                                         const std::string& loaded = "");

/// Renames `loaded`, a checkpoint of `step`, to its step's name if it is in `run_folder` under another name. A folder
/// with that name is set aside. Returns the path. One process. Throws Error(write).
std::string name_by_step(const std::string& run_folder, const std::string& loaded, std::int64_t step);

}  // namespace kozero::io
