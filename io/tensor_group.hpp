// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_group.hpp: one f32 value for every element of every parameter, as a group of an HDF5 file.
//   /<group>/<name>   each tensor under its published name, shape and orientation; contiguous, no pads
// The group knows no rank count and no placement: each rank writes its own slices to where they lie in the file,
// nothing is gathered, and any rank count reads them back, as unions of hyperslabs of the shaped datasets.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/laid_out_file.hpp>
#include <kozero/io/tensor_places.hpp>

namespace kozero::io {

/// Elements [begin, begin + values.extent(0)) of a unit, pads included: what one rank owns of it.
template <class T>
struct UnitSlice {
  int unit = 0;
  std::int64_t begin = 0;
  HostVector<T> values;
};

/// A group's name and this rank's slices of it.
template <class T>
struct TensorGroup {
  std::string name;  ///< "parameters", "optimizer/exp_avg"
  std::vector<UnitSlice<T>> slices;
};

/// Throws Error(internal) unless the slices of all ranks hold every element of every tensor exactly once: datasets are
/// not filled at creation, so an element that no rank writes would be garbage in the file. Collective.
void require_complete(dist::Communicator& comm, const ParameterTable& table, const TensorGroup<const float>& group);

/// Writes this rank's slices to the group's tensors, which lie at `places`, in the table's order. Throws Error(write).
void write_group(const FileDescriptor& file, const ParameterTable& table, const TensorGroup<const float>& group,
                 const std::vector<TensorPlace>& places);

/// Fills any slices, pads with zeros. Collective, with agreement. Throws Error(input) naming file, tensor and reason
/// where the group's tensors are not the table's.
void read_group(dist::Communicator& comm, const Hdf5File& file, const ParameterTable& table,
                const TensorGroup<float>& group);

}  // namespace kozero::io
