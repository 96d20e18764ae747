// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_file.hpp: a file of a model's weights: its header with checksums, and writing and reading by all ranks.
//   KoZeRO weights 1, sealed HASH  XXH3-128 of the other bytes of the block
//   bytes N                        of the whole file
//   xxh3_128 HASH                  XXH3-128 of the hashes (hexadecimal, joined) of the 16 MiB blocks of bytes 4096 to N
//   step S
//   tokens T
//   model JSON
//   base HASH                      of the weights below adapters; only in files of adapters
//   zeros
//   /parameters/<name>   always        /optimizer/<state>/<name>   in a checkpoint's state
//   root attributes: format_version, description, step, tokens; a tied tensor has tied_to, the other's name
// The header is HDF5's user block, the first 4 KiB. verify_weights_header compares its hashes with the file, so that
// libhdf5 reads only bytes that were written. This detects accidents; it is not a signature. A weights file is written
// under a temporary name, synced and renamed. The state of a checkpoint, which write_tensor_file writes too, has no
// header, but a manifest. Readers expect a verified file (verify() in checkpoint.hpp). WeightsStream writes a weights
// file on one process; the other functions are collective, and after each phase the ranks agree on the worst status.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {

inline constexpr std::int64_t kWeightsHeaderBytes = 4096;

/// Hashes the file and fills its first kWeightsHeaderBytes; the file is on the disk afterwards. Collective. Throws
/// Error(write or input), and Error(internal) if the description is too long.
void write_weights_header(distributed::Communicator& comm, const std::string& path,
                          const WeightsDescription& description);

/// Reads only the header, on this process. Throws Error(input) naming file and reason.
WeightsDescription read_weights_header(const std::string& path);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
WeightsDescription read_weights_header(distributed::Communicator& comm, const std::string& path);

/// Compares every byte of the file with its header; all ranks must find rank 0's header. Collective. Throws
/// Error(input), seen by all ranks.
WeightsDescription verify_weights_header(distributed::Communicator& comm, const std::string& path);

/// Writes a whole file under its own name, replacing an older one, and syncs it; returns the tensors' offsets. Over all
/// ranks a group's shards must cover every element of every tensor exactly once (internal error). Throws Error(write),
/// Error(non_finite) naming the first element that is not finite, and what `watch` throws, seen by all ranks.
std::vector<TensorRef> write_tensor_file(distributed::Communicator& comm, const std::string& path,
                                         const ParameterTable& table,
                                         const std::vector<TensorGroup<const float>>& groups,
                                         const WeightsDescription& description, ReadWatch* watch = nullptr);

/// What a file lacks of the state that was to be read.
struct AbsentState {
  std::vector<std::string> groups;   ///< no state at all: "optimizer/exp_avg"
  std::vector<std::string> tensors;  ///< whose state began at zero, since they were frozen: "wte.weight"
  [[nodiscard]] bool empty() const { return groups.empty() && tensors.empty(); }
};

/// Fills the shards of the groups; returns what the file lacks. The first group must be there; if another is not, or
/// has no tensor that trains, only the first is read.
/// Throws Error(input) naming file, tensor and reason if a group's tensors are not the table's.
AbsentState read_tensor_file(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                             const std::vector<TensorGroup<float>>& groups);

/// Writes a weights file, complete or absent, with the parameters only. Rank 0 calls `may_publish` before the rename;
/// `may_publish` throws to keep the older file. Throws as write_tensor_file
/// does.
void write_weights(
    distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
    const std::vector<RangeValues<const float>>& shards, const WeightsDescription& description,
    const std::function<void()>& may_publish = [] {}, ReadWatch* watch = nullptr);

/// Fills any shards of the parameters, pads with zeros. Throws Error(input).
WeightsDescription read_weights(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<RangeValues<float>>& shards);

/// The path of a tensor's dataset: "/parameters/NAME".
std::string weights_dataset(const std::string& name);

/// Writes a weights file on one process, tensor by tensor, in chunks of any size.
/// Every element of every tensor must be written before the file is closed. Throws Error(write).
class WeightsStream {
 public:
  WeightsStream(const std::string& path, const ParameterTable& table, const WeightsDescription& description);
  /// Elements [first, first + values.size()) of the table's tensor `index`.
  void write(std::size_t index, std::int64_t first, std::span<const float> values) const;
  /// Syncs the file, writes its header and renames it.
  void close();

 private:
  std::string path_;
  WeightsDescription description_;
  std::vector<TensorRef> tensors_;
  FileDescriptor file_;
};

}  // namespace kozero::io
