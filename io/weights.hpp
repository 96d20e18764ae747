// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights.hpp: the plain weights file: every tensor under its published name, shape and orientation, in f32.
//   /parameters/<name>   contiguous, no pads        root attributes: format_version, description, step, tokens
// The file knows no rank count and no placement: each rank writes its own slices as unions of hyperslabs of the shaped
// datasets, nothing is gathered, and any rank count reads them back. Written under a temporary name, synced, renamed.
// All functions but read_description are collective; after each phase the ranks agree on the worst status.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::io {

/// Elements [begin, begin + values.extent(0)) of a unit, pads included: what one rank owns of it.
template <class T>
struct UnitSlice {
  int unit = 0;
  std::int64_t begin = 0;
  HostVector<T> values;
};

/// What a weights file says of itself.
struct WeightsDescription {
  std::string model;        ///< JSON, given by the caller
  std::int64_t step = 0;    ///< updates done
  std::int64_t tokens = 0;  ///< tokens seen
};

/// Over all ranks, `slices` must hold every element of every tensor exactly once (internal error). Throws Error(write).
void write_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                   const std::vector<UnitSlice<const float>>& slices, const WeightsDescription& description);

/// Fills any slices, pads with zeros. Throws Error(input) naming file, tensor and reason where the file's tensors are
/// not the table's.
WeightsDescription read_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<UnitSlice<float>>& slices);

/// On this process alone. Throws Error(input).
WeightsDescription read_description(const std::string& path);

}  // namespace kozero::io
