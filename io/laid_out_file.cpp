// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>

#include <kozero/io/laid_out_file.hpp>
#include <kozero/io/memory.hpp>
#include <kozero/io/memory_file.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {

namespace {

void write_attributes(Hdf5File& file, const WeightsDescription& description) {
  file.write_attribute("format_version", kWeightsFormat);
  file.write_attribute("description", description.model);
  file.write_attribute("step", description.step);
  file.write_attribute("tokens", description.tokens);
}

/// All of the file but its tensors' values, in memory; returns where those lie.
std::vector<std::vector<TensorPlace>> write_draft(const MemoryFile& draft, const ParameterTable& table,
                                                  const std::vector<std::string>& groups,
                                                  const WeightsDescription& description, std::int64_t user_block) {
  Hdf5File file(draft.path(), Hdf5Access::create, user_block);
  write_attributes(file, description);
  std::vector<std::vector<TensorPlace>> places;
  for (const auto& group : groups) {
    places.push_back(tensors_of(group, table));
    create_tensors(file, group, places.back(), group == kParameterGroup ? description.ties : Ties());
  }
  file.close();
  return places;
}

}  // namespace

std::vector<std::vector<TensorPlace>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                   const std::vector<std::string>& groups,
                                                   const WeightsDescription& description, std::int64_t user_block) {
  std::optional<MemoryFile> draft;
  std::vector<std::vector<TensorPlace>> places;
  try {
    draft.emplace();
    places = write_draft(*draft, table, groups, description, user_block);
  } catch (const Error& problem) {
    if (problem.failure() != Failure::write) throw;
    throw Error(Failure::write, "too little memory for the metadata of " + path +
                                    ", not too little disk: " + problem.what() + "; " +
                                    readable_bytes(available_memory()) + " of memory are available");
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  FileDescriptor copy(path, FileDescriptor::Use::create);
  draft->copy_to(copy);
  copy.close();
  return places;
}

}  // namespace kozero::io
