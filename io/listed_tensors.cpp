// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fnmatch.h>

#include <kozero/io/listed_tensors.hpp>

namespace kozero::io {
namespace {

void add_group(std::vector<ListedTensor>& tensors, const Hdf5File& file, const std::string& group) {
  for (const auto& name : file.names(group)) {
    const std::string full = group + "/" + name;
    tensors.push_back({full, file.open_dataset(full).shape()});
  }
}

}  // namespace

std::int64_t ListedTensor::extent() const {
  std::int64_t extent = 1;
  for (const std::int64_t dim : shape) extent *= dim;
  return extent;
}

std::vector<ListedTensor> list_tensors(const Hdf5File& file) {
  std::vector<ListedTensor> tensors;
  add_group(tensors, file, "/parameters");
  if (!file.has_group("optimizer")) return tensors;
  for (const auto& state : file.names("/optimizer")) add_group(tensors, file, "/optimizer/" + state);
  return tensors;
}

std::vector<ListedTensor> chosen_tensors(const std::vector<ListedTensor>& tensors, const std::string& pattern) {
  if (pattern.empty()) return tensors;
  std::vector<ListedTensor> chosen;
  for (const auto& tensor : tensors) {
    if (::fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0) chosen.push_back(tensor);
  }
  return chosen;
}

}  // namespace kozero::io
