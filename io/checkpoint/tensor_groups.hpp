// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_groups.hpp: groups of f32 tensors in an HDF5 file: layout of the file, writing and reading by all ranks.
//   /<group>/<name>        each tensor under its published name, shape and orientation; contiguous, no pads
//   element i of a tensor  ->  bytes [offset + 4 i, offset + 4 i + 4)        little endian, contiguous
// One process creates the file with all datasets and attributes and sends the byte offsets to the other ranks. Each
// rank then writes its own shards at these offsets. So no rank waits inside libhdf5 or MPI-IO for another one, and all
// ranks learn of a failure at the next agreement. The file does not depend on the number of ranks, and any number of
// ranks reads it. Only rank 0 reads the file's structure by libhdf5, so that a file server does not receive the same
// requests from every rank of a large job.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/hdf5/file.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

static_assert(std::endian::native == std::endian::little, "floats go into the file as they lie in memory");

/// The beginning of an error of memory with Failure::write: HDF5's metadata are laid out in memory first.
inline constexpr const char* kTooLittleMemory = "too little memory";

struct TensorRef {
  std::string name;  ///< with its group: "optimizer/exp_avg/wte.weight"
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< bytes from the file's first
};

/// Tensor -> a second name of its values: a tied embedding's head.
using Ties = std::map<std::string, std::string>;

/// The tie of a model whose head has the values of the embedding, the table's first tensor.
inline Ties tied_head(const ParameterTable& table) { return {{table.tensors().front().name, "lm_head.weight"}}; }

/// The attribute of a dataset in kParameterGroup with the second name.
inline constexpr const char* kTiedAttribute = "tied_to";

/// Throws Error(input), "PATH: tensor NAME: element (3, 7) is nan; ...", if one of the tensor's elements from `first`
/// on is not finite.
void require_finite(const std::string& path, const Tensor& tensor, std::int64_t first, std::span<const float> values);

/// Whether a file has the tensor in this group: all parameters but the base of adapters, and optimizer state of
/// trainable tensors alone.
bool is_stored(const std::string& group, const ParameterTable& table, int tensor);

/// The stored tensors of a group in the table's order, without offsets yet.
std::vector<TensorRef> tensors_of(const std::string& group, const ParameterTable& table);

/// Makes the group and its datasets and sets the tensors' offsets. On this process alone. Throws Error(write).
void create_tensors(Hdf5File& file, const std::string& group, std::vector<TensorRef>& tensors, const Ties& ties = {});

/// Rank 0's offsets on every rank.
void share_offsets(distributed::Communicator& comm, std::vector<TensorRef>& tensors);

/// The description in a file of a model's tensors.
struct WeightsDescription {
  std::string model;        ///< JSON, given by the caller
  std::int64_t step = 0;    ///< updates done
  std::int64_t tokens = 0;  ///< tokens seen
  Ties ties = {};           ///< written beside the tensors; not read back
  std::string base = {};    ///< hash of the weights below the adapters; "" without adapters
};

inline constexpr const char* kParameterGroup = "parameters";
inline constexpr std::int64_t kWeightsFormat = 1;  ///< the root attribute format_version

/// Creates the file with attributes, groups and datasets, replacing an older file. libhdf5 makes it in memory
/// (handle.hpp); the values are written to their offsets afterwards. `user_block`: bytes that HDF5 leaves free at the
/// file's beginning, 0 or a power of 2 from 512. Returns the groups' tensors with their offsets, in the table's order.
/// On this process alone. Throws Error(write).
std::vector<std::vector<TensorRef>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                 const std::vector<std::string>& groups,
                                                 const WeightsDescription& description, std::int64_t user_block);

/// Elements [begin, begin + values.extent(0)) of a unit, pads included: a rank's shard, or the whole unit.
template <class T>
struct RangeValues {
  int unit = 0;
  std::int64_t begin = 0;
  HostVector<T> values;
};

/// A group's name and this rank's memory for it: the rank's shards when writing, any ranges when reading.
template <class T>
struct TensorGroup {
  std::string name;  ///< "parameters", "optimizer/exp_avg"
  std::vector<RangeValues<T>> ranges;
};

/// Follows the reads of values that go into a file, for memory whose values may change by themselves, such as pages of
/// a disk.
class ReadWatch {
 public:
  virtual ~ReadWatch() = default;
  /// Before the first read for a file.
  virtual void begin() = 0;
  /// These values went into the file; their pages are still in memory.
  virtual void read(std::span<const float> values) = 0;
  /// After the last read. Throws Error(input) if values are not those that were last written to the memory.
  virtual void require_unchanged() = 0;
};

/// Throws Error(internal) unless the ranges of all ranks cover every element of every tensor exactly once. Datasets are
/// not filled at creation, so an element that no rank writes would be undefined in the file. Collective.
void require_complete(distributed::Communicator& comm, const ParameterTable& table,
                      const TensorGroup<const float>& group);

/// Writes this rank's ranges to the group's stored tensors, `tensors`, in the table's order. `watch`: follows the
/// reads, or nullptr. Returns "" or, of the first value that is not finite, "tensor NAME: element (3, 7) is inf".
/// Throws Error(write).
std::string write_group(const FileDescriptor& file, const ParameterTable& table, const TensorGroup<const float>& group,
                        const std::vector<TensorRef>& tensors, ReadWatch* watch = nullptr);

/// Fills the ranges from the file at `path`, pads with zeros. `opened`: that file on rank 0, nullptr on the others.
/// Collective, with agreement. Throws Error(input) naming file, tensor and reason if the group's tensors are not the
/// table's, or if a value is not finite.
std::vector<std::string> read_group(distributed::Communicator& comm, const std::string& path, const Hdf5File* opened,
                                    const ParameterTable& table, const TensorGroup<float>& group);

}  // namespace kozero::io
