// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp: one checkpoint, a folder that is complete or absent.
//   step_000001000/   state.h5   further small files   manifest.json
// Written as step_000001000.partial: state.h5, the small files, the manifest last, each synced; then one rename and a
// sync of the parent. Every rank writes and hashes its own share; after each phase the ranks agree on the worst status.
// libhdf5 reads only bytes that the manifest vouches for. It guards against accidents, not against malice.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <kozero/io/manifest.hpp>
#include <kozero/io/tensor_group.hpp>

namespace kozero::io {

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

/// Returns the bytes of the state. Collective; makes no MPI call but control messages. Throws Error(write), seen by all
/// ranks, with path, reason, the bytes it takes and those free, and leaves nothing behind: where the disk is too full
/// for it, before a byte is written; where a call fails; where the folder exists already.
std::int64_t write_checkpoint(dist::Communicator& comm, const std::string& folder, const ParameterTable& table,
                              const CheckpointContents& contents);

/// The manifest on its own, read on this process. Throws Error(input).
Manifest read_manifest(const std::string& folder);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
Manifest read_manifest(dist::Communicator& comm, const std::string& folder);

/// Reads the manifest and compares every byte of every file with it; all ranks must find rank 0's manifest. Collective.
/// Throws Error(input), seen by all ranks.
Manifest verify_checkpoint(dist::Communicator& comm, const std::string& folder);

}  // namespace kozero::io
