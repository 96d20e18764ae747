// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_groups.hpp: groups of f32 tensors in an HDF5 file: layout of the file, writing and reading by all ranks.
// One process creates the file with all datasets and attributes and sends the byte offsets to the other ranks.
// Each rank then writes its own shards at these offsets. The file does not depend on the number of ranks.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/hdf5/file.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

// Where each tensor of an HDF5 file lies, so that every rank writes its elements straight there.
//   element i of a tensor  ->  bytes [offset + 4 i, offset + 4 i + 4)        little endian, contiguous
// One rank makes the file with all its groups, datasets and attributes and tells the others the offsets: no rank waits
// inside libhdf5 or MPI-IO for another one, so one that fails is known to all at the next agreement.

static_assert(std::endian::native == std::endian::little, "floats go into the file as they lie in memory");

/// How an error begins that is of memory, though it has Failure::write: HDF5's metadata are laid out in memory first.
inline constexpr const char* kTooLittleMemory = "too little memory";

struct TensorRef {
  std::string name;  ///< with its group: "optimizer/exp_avg/wte.weight"
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< bytes from the file's first
};

/// Tensor -> the other name that its values go by: a tied embedding's head.
using Ties = std::map<std::string, std::string>;

/// Of a model whose head's values are the embedding's, the table's first tensor.
inline Ties tied_head(const ParameterTable& table) { return {{table.tensors().front().name, "lm_head.weight"}}; }

/// The attribute of a dataset in kParameterGroup that says so.
inline constexpr const char* kTiedAttribute = "tied_to";

/// Whether a file has the tensor in this group: all parameters, but optimizer state of trainable tensors alone.
bool is_stored(const std::string& group, const ParameterTable& table, int tensor);

/// The stored tensors of a group in the table's order, without offsets yet.
std::vector<TensorRef> tensors_of(const std::string& group, const ParameterTable& table);

/// Makes the group and its datasets and sets the tensors' offsets. On this process alone. Throws Error(write).
void create_tensors(Hdf5File& file, const std::string& group, std::vector<TensorRef>& tensors, const Ties& ties = {});

/// Rank 0's offsets on every rank.
void share_offsets(distributed::Communicator& comm, std::vector<TensorRef>& tensors);

// What a file of a model's tensors says of itself.

struct WeightsDescription {
  std::string model;        ///< JSON, given by the caller
  std::int64_t step = 0;    ///< updates done
  std::int64_t tokens = 0;  ///< tokens seen
  Ties ties = {};           ///< written beside the tensors; not read back
};

// A new file of tensors, on the disk but for its values: attributes, groups, datasets.
// libhdf5 makes it in memory (handle.hpp); the values are written straight to their offsets afterwards.

inline constexpr const char* kParameterGroup = "parameters";
inline constexpr std::int64_t kWeightsFormat = 1;  ///< the root attribute format_version

/// Replaces an older file. `user_block`: bytes that HDF5 leaves free at the file's beginning, 0 or a power of 2 from
/// 512. Returns the groups' tensors with their offsets, in the table's order. On this process alone.
/// Throws Error(write).
std::vector<std::vector<TensorRef>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                 const std::vector<std::string>& groups,
                                                 const WeightsDescription& description, std::int64_t user_block);

// One f32 value for every element of every parameter, as a group of an HDF5 file.
//   /<group>/<name>   each tensor under its published name, shape and orientation; contiguous, no pads
// The group knows no rank count and no placement: each rank writes its own shards to where they lie in the file,
// nothing is gathered, and any rank count reads them back. Rank 0 alone looks into the file by libhdf5, so that a
// file server is not asked for the same few bytes by every rank of a large job.

/// Elements [begin, begin + values.extent(0)) of a unit, pads included: a rank's shard, or the whole unit.
template <class T>
struct RangeValues {
  int unit = 0;
  std::int64_t begin = 0;
  HostVector<T> values;
};

/// A group's name and what this rank holds of it: its shards to write, any ranges to read.
template <class T>
struct TensorGroup {
  std::string name;  ///< "parameters", "optimizer/exp_avg"
  std::vector<RangeValues<T>> ranges;
};

/// Throws Error(internal) unless the ranges of all ranks hold every element of every stored tensor once: datasets are
/// not filled at creation, so an element that no rank writes would be garbage in the file. Collective.
void require_complete(distributed::Communicator& comm, const ParameterTable& table,
                      const TensorGroup<const float>& group);

/// Writes this rank's ranges to the group's stored tensors, `tensors`, in the table's order. Throws Error(write).
void write_group(const FileDescriptor& file, const ParameterTable& table, const TensorGroup<const float>& group,
                 const std::vector<TensorRef>& tensors);

/// Fills the ranges from the file at `path`, pads and frozen tensors' state with zeros. `opened`: that file on rank 0,
/// nullptr on the others. Collective, with agreement. Returns the trainable tensors whose state the file lacks, since
/// the run that wrote it froze them: theirs is zero. Throws Error(input) naming file, tensor and reason where the group
/// has tensors that are not the table's, or where a parameter is missing.
std::vector<std::string> read_group(distributed::Communicator& comm, const std::string& path, const Hdf5File* opened,
                                    const ParameterTable& table, const TensorGroup<float>& group);

}  // namespace kozero::io
