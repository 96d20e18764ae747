// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_file.hpp: a file of a model's weights: its header with checksums, and writing and reading by all ranks.
// The header is HDF5's user block of 4 KiB. It holds the description and the hashes of the file, which
// verify_weights_header compares. WeightsStream writes such a file on one process. write_tensor_file also writes the
// state of a checkpoint.
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

// The first 4 KiB of a weights file, HDF5's user block: its description, and hashes that vouch for its bytes,
// so that libhdf5 reads none that were not written. A checkpoint's state has its manifest instead.
//   KoZeRO weights 1, sealed HASH  XXH3-128 of the other bytes of the block
//   bytes N                        of the whole file
//   xxh3_128 HASH                  XXH3-128 of the hashes (hexadecimal, joined) of the 16 MiB blocks of bytes 4096 to N
//   step S
//   tokens T
//   model JSON
//   zeros
// It guards against accidents; it is no signature.

inline constexpr std::int64_t kWeightsHeaderBytes = 4096;

/// Hashes the file and fills its first kWeightsHeaderBytes; the file is on the disk afterwards. Collective. Throws
/// Error(write or input), and Error(internal) where the description is too long.
void write_weights_header(distributed::Communicator& comm, const std::string& path,
                          const WeightsDescription& description);

/// On this process alone, without a look at the file's other bytes. Throws Error(input) naming file and reason.
WeightsDescription read_weights_header(const std::string& path);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
WeightsDescription read_weights_header(distributed::Communicator& comm, const std::string& path);

/// Compares every byte of the file with its header; all ranks must find rank 0's header. Collective. Throws
/// Error(input), seen by all ranks.
WeightsDescription verify_weights_header(distributed::Communicator& comm, const std::string& path);

// A file of a model's tensors, plain or with training state.
//   /parameters/<name>   always        /optimizer/<state>/<name>   in a checkpoint
//   root attributes: format_version, description, step, tokens; a tied tensor has tied_to, the other's name
// A weights file alone gets the header above, is written under a temporary name, synced and renamed; a checkpoint does
// that with its folder and manifest. What is read was verified before by verify() (checkpoint.hpp).
// All functions are collective; after each phase the ranks agree on the worst status.

/// A whole file under its own name, replacing an older one, and on the disk; returns where its tensors lie. Over all
/// ranks a group's shards must hold every element of every tensor exactly once (internal error). Throws Error(write).
std::vector<TensorRef> write_tensor_file(distributed::Communicator& comm, const std::string& path,
                                         const ParameterTable& table,
                                         const std::vector<TensorGroup<const float>>& groups,
                                         const WeightsDescription& description);

/// What a file lacks of the state that was to be read.
struct AbsentState {
  std::vector<std::string> groups;   ///< no state at all: "optimizer/exp_avg"
  std::vector<std::string> tensors;  ///< whose state began at zero, since they were frozen: "wte.weight"
  [[nodiscard]] bool empty() const { return groups.empty() && tensors.empty(); }
};

/// Fills the shards of the groups; returns what the file lacks. The first group must be there; where any other is not,
/// or has no tensor that trains, the first alone is read.
/// Throws Error(input) naming file, tensor and reason where a group's tensors are not the table's.
AbsentState read_tensor_file(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                             const std::vector<TensorGroup<float>>& groups);

/// The plain weights file: the parameters alone, complete or absent. Rank 0 calls `may_publish` before the file gets
/// its name; it throws to keep the older one. Throws Error(write).
void write_weights(
    distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
    const std::vector<RangeValues<const float>>& shards, const WeightsDescription& description,
    const std::function<void()>& may_publish = [] {});

/// Fills any shards of the parameters, pads with zeros. Throws Error(input).
WeightsDescription read_weights(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<RangeValues<float>>& shards);

/// Where a tensor lies: "/parameters/NAME".
std::string weights_dataset(const std::string& name);

// Writes a weights file on one process, tensor by tensor, in chunks of any size.
// Every element of every tensor must be written before the file is closed. Throws Error(write).

class WeightsStream {
 public:
  WeightsStream(const std::string& path, const ParameterTable& table, const WeightsDescription& description);
  /// Elements [first, first + values.size()) of the table's tensor `index`.
  void write(std::size_t index, std::int64_t first, std::span<const float> values) const;
  /// Syncs the file, writes its header and gives it its name.
  void close();

 private:
  std::string path_;
  WeightsDescription description_;
  std::vector<TensorRef> tensors_;
  FileDescriptor file_;
};

}  // namespace kozero::io
