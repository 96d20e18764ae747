// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// listed_tensors.hpp: the tensors of a weights file or a checkpoint's state by their full names.
//   /parameters/<name>   /optimizer/<state>/<name>        parameters first, names sorted
// A pattern is the shell's (fnmatch): * ? [a-z] over the full name, a slash being a letter like any other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/io/hdf5_file.hpp>

namespace kozero::io {

struct ListedTensor {
  std::string name;  ///< "/parameters/wte.weight"
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t extent() const;
};

/// Throws Error(input).
std::vector<ListedTensor> list_tensors(const Hdf5File& file);

/// Those whose names the pattern fits; all for an empty pattern.
std::vector<ListedTensor> chosen_tensors(const std::vector<ListedTensor>& tensors, const std::string& pattern);

}  // namespace kozero::io
