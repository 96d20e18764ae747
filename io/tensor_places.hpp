// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_places.hpp: where each tensor of an HDF5 file lies, so that every rank writes its elements straight there.
//   element i of a tensor  ->  bytes [offset + 4 i, offset + 4 i + 4)        little endian, contiguous
// One rank makes the file with all its groups, datasets and attributes and tells the others the offsets: no rank waits
// inside libhdf5 or MPI-IO for another one, so one that fails is known to all at the next agreement.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/io/hdf5_file.hpp>

namespace kozero::io {

static_assert(std::endian::native == std::endian::little, "floats go into the file as they lie in memory");

struct TensorPlace {
  std::string name;  ///< with its group: "optimizer/exp_avg/wte.weight"
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< bytes from the file's first
};

/// Tensor -> the other name that its values go by: a tied embedding's head.
using Ties = std::map<std::string, std::string>;

/// Of a model whose head's values are the embedding's, the table's first tensor.
inline Ties tied_head(const ParameterTable& table) { return {{table.rows().front().name, "lm_head.weight"}}; }

/// The attribute of a dataset in kParameterGroup that says so.
inline constexpr const char* kTiedAttribute = "tied_to";

/// The tensors of a group in the table's order, not placed yet.
std::vector<TensorPlace> tensors_of(const std::string& group, const ParameterTable& table);

/// Makes the group and its datasets and sets the tensors' offsets. On this process alone. Throws Error(write).
void create_tensors(Hdf5File& file, const std::string& group, std::vector<TensorPlace>& tensors, const Ties& ties = {});

/// Rank 0's offsets on every rank.
void share_offsets(dist::Communicator& comm, std::vector<TensorPlace>& tensors);

}  // namespace kozero::io
