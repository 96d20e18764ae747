// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: a file of a model's tensors, plain or with training state.
//   /parameters/<name>   always        /optimizer/<state>/<name>   in a checkpoint
//   root attributes: format_version, description, step, tokens; a tied tensor has tied_to, the other's name
// A weights file alone is sealed (seal.hpp), written under a temporary name, synced, renamed; a checkpoint does that
// with its folder and manifest. What is read was verified before: verify_seal, verify_checkpoint.
// All functions are collective; after each phase the ranks agree on the worst status.
#pragma once
#include <string>
#include <vector>

#include <kozero/io/tensor_group.hpp>
#include <kozero/io/weights_description.hpp>

namespace kozero::io {

/// A whole file under its own name, replacing an older one, and on the disk; returns where its tensors lie. Over all
/// ranks a group's slices must hold every element of every tensor exactly once (internal error). Throws Error(write).
std::vector<TensorPlace> write_tensor_file(dist::Communicator& comm, const std::string& path,
                                           const ParameterTable& table,
                                           const std::vector<TensorGroup<const float>>& groups,
                                           const WeightsDescription& description);

/// Fills the slices of the groups; returns the names of those that the file lacks. The first group must be there; where
/// any other is not, the first alone is read.
/// Throws Error(input) naming file, tensor and reason where a group's tensors are not the table's.
std::vector<std::string> read_tensor_file(dist::Communicator& comm, const std::string& path,
                                          const ParameterTable& table, const std::vector<TensorGroup<float>>& groups);

/// The plain weights file: the parameters alone, complete or absent. Throws Error(write).
void write_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                   const std::vector<UnitSlice<const float>>& slices, const WeightsDescription& description);

/// Fills any slices of the parameters, pads with zeros. Throws Error(input).
WeightsDescription read_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<UnitSlice<float>>& slices);

/// Where a tensor lies: "/parameters/NAME".
std::string weights_dataset(const std::string& name);

}  // namespace kozero::io
