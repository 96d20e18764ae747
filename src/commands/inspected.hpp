// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspected.hpp: what inspect looks at: a checkpoint or a weights file.
// A checkpoint's record and tensor list come from its manifest alone, a weights file's record from its seal; either is
// opened only when its bytes are those that manifest or seal vouch for.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <kozero/io/checkpoint.hpp>
#include <kozero/io/listed_tensors.hpp>

namespace kozero::commands {

struct Inspected {
  std::string path;                      ///< the checkpoint's folder, or the weights file
  std::optional<io::Manifest> manifest;  ///< of a checkpoint
  io::CheckpointRecord record;           ///< of a weights file: step, tokens and model
};

/// A run's folder names its newest checkpoint, or else its weights file: rank 0 looks, for all. Collective. Throws
/// Error(deck or input), seen by all ranks.
Inspected find_inspected(const std::string& path, dist::Communicator& comm);

/// A checkpoint's tensors with their shapes, by its deck: its state stays unopened. Throws Error(input or deck).
std::vector<io::ListedTensor> tensors_of(const Inspected& inspected);

/// Compares every byte with the manifest or seal; returns one line of what was compared. Collective. Throws
/// Error(input), seen by all ranks.
std::string verified(const Inspected& inspected, dist::Communicator& comm);

/// Opens the HDF5 file on this process alone; after its bytes were verified. Collective.
io::Hdf5File opened(const Inspected& inspected, dist::Communicator& comm);

}  // namespace kozero::commands
