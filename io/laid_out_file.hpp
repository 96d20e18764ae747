// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// laid_out_file.hpp: a new file of tensors, on the disk but for its values: attributes, groups, datasets.
// libhdf5 makes it in memory (memory_file.hpp); the values are written straight to their places afterwards.
#pragma once
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/io/tensor_places.hpp>
#include <kozero/io/weights_description.hpp>

namespace kozero::io {

inline constexpr const char* kParameterGroup = "parameters";
inline constexpr std::int64_t kWeightsFormat = 1;  ///< the root attribute format_version

/// Replaces an older file. `user_block`: bytes that HDF5 leaves free at the file's beginning, 0 or a power of 2 from
/// 512. Returns the groups' tensors with their places, in the table's order. On this process alone.
/// Throws Error(write).
std::vector<std::vector<TensorPlace>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                   const std::vector<std::string>& groups,
                                                   const WeightsDescription& description, std::int64_t user_block);

}  // namespace kozero::io
