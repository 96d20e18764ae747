// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/io/laid_out_file.hpp>
#include <kozero/io/memory_file.hpp>

namespace kozero::io {

namespace {

void write_attributes(Hdf5File& file, const WeightsDescription& description) {
  file.write_attribute("format_version", kWeightsFormat);
  file.write_attribute("description", description.model);
  file.write_attribute("step", description.step);
  file.write_attribute("tokens", description.tokens);
}

}  // namespace

std::vector<std::vector<TensorPlace>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                   const std::vector<std::string>& groups,
                                                   const WeightsDescription& description, std::int64_t user_block) {
  MemoryFile draft;
  Hdf5File file(draft.path(), Hdf5Access::create, user_block);
  draft.remove_name();
  write_attributes(file, description);
  std::vector<std::vector<TensorPlace>> places;
  for (const auto& group : groups) {
    places.push_back(tensors_of(group, table));
    create_tensors(file, group, places.back(), group == kParameterGroup ? description.ties : Ties());
  }
  file.close();
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  FileDescriptor copy(path, FileDescriptor::Use::create);
  draft.copy_to(copy);
  copy.close();
  return places;
}

}  // namespace kozero::io
