// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspected.hpp: the checkpoint or weights file that `inspect` reads, and the differences between two of them. A file
// is opened only after its bytes were compared with its manifest or checksum. A difference lists records, missing
// tensors, and of each tensor the first element that differs.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/inspection.hpp"

namespace kozero::commands {

// What inspect looks at: a checkpoint or a weights file.
// A checkpoint's record and tensor list come from its manifest alone, a weights file's record from its header; either
// is opened only when its bytes are those that manifest or header vouch for.

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

/// Compares every byte with the manifest or header; returns one line of what was compared. Collective. Throws
/// Error(input), seen by all ranks.
std::string verified(const Inspected& inspected, dist::Communicator& comm);

/// Opens the HDF5 file on this process alone; after its bytes were verified. Collective.
io::Hdf5File opened(const Inspected& inspected, dist::Communicator& comm);

// Inspect --diff: where two checkpoints or weights files differ.
//   what their records say differently; tensors that one lacks; of each tensor that differs its first element that
//   does, both values, how many differ and by how much at most

struct Comparison {
  std::vector<std::string> lines;
  nlohmann::ordered_json json;
  std::int64_t tensors = 0;    ///< that either has
  std::int64_t different = 0;  ///< of them, in bits, shape or presence; records do not count
};

/// Of the tensors whose names `pattern` fits, all where it is empty. Collective.
/// Throws Error(input), seen by all ranks.
Comparison compared(const Inspected& a, const Inspected& b, const std::string& pattern, dist::Communicator& comm);

}  // namespace kozero::commands
