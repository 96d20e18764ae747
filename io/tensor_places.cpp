// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/io/tensor_places.hpp>

namespace kozero::io {

std::vector<TensorPlace> tensors_of(const std::string& group, const ParameterTable& table) {
  std::vector<TensorPlace> tensors;
  for (const auto& row : table.rows()) {
    const auto bytes = row.extent() * static_cast<std::int64_t>(sizeof(float));
    tensors.push_back({.name = group + "/" + row.name, .shape = row.shape, .bytes = bytes});
  }
  return tensors;
}

void create_tensors(Hdf5File& file, const std::string& group, std::vector<TensorPlace>& tensors,
                    const Ties& ties) {
  file.create_group("/" + group);
  for (auto& tensor : tensors) {
    auto dataset = file.create_dataset("/" + tensor.name, tensor.shape);
    tensor.offset = dataset.offset();
    const auto tie = ties.find(tensor.name.substr(group.size() + 1));
    if (tie != ties.end()) dataset.write_attribute(kTiedAttribute, tie->second);
    dataset.close();
  }
}

void share_offsets(dist::Communicator& comm, std::vector<TensorPlace>& tensors) {
  std::ostringstream mine;
  for (const auto& tensor : tensors) mine << tensor.offset << '\n';
  std::istringstream all(comm.broadcast_control(mine.str()));
  for (auto& tensor : tensors) all >> tensor.offset;
  require(!all.fail(), "share_offsets: the ranks have different tensors");
}

}  // namespace kozero::io
